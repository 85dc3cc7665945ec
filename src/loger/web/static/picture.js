// The reasons for one item as a picture: user, what lies between, item; width says how much a path contributes.

import { h, svg } from "/static/dom.js";
import { kind, number, plural, say, verb } from "/static/words.js";

const TALL = 48;
const CHARACTER = 6.4; // mean width of a letter at 12 px

function lines(text, width) {
  const most = Math.max(6, Math.floor((width - 12) / CHARACTER));
  const out = [""];
  for (const word of text.split(/\s+/)) {
    const line = out[out.length - 1];
    if (!line) out[out.length - 1] = word;
    else if (line.length + 1 + word.length <= most) out[out.length - 1] += ` ${word}`;
    else out.push(word);
  }
  const kept = out.slice(0, 2);
  if (out.length > 2) kept[1] += "…";
  return kept.map((line) => (line.length > most ? `${line.slice(0, most - 1)}…` : line));
}

// Nodes in layers, edges with what goes over them; each knows the reasons it belongs to.
function laid(paths) {
  const last = Math.max(...paths.map((path) => path.relations.length));
  const layers = Array.from({ length: last + 1 }, () => []);
  const nodes = new Map();
  const edges = new Map();
  paths.forEach((path) => {
    const hops = path.relations.length;
    const ids = path.entities.map((entity, k) => {
      const layer = k === hops ? last : k;
      const id = JSON.stringify([layer, entity.type, entity.name]);
      if (!nodes.has(id)) {
        nodes.set(id, { ...entity, layer, reasons: new Set() });
        layers[layer].push(id);
      }
      nodes.get(id).reasons.add(path.reason);
      return id;
    });
    path.relations.forEach((relation, k) => {
      const id = JSON.stringify([ids[k], ids[k + 1], relation]);
      if (!edges.has(id)) {
        const edge = { from: ids[k], to: ids[k + 1], relation, weight: 0, reasons: new Set(), via: [] };
        edges.set(id, edge);
        // A line that skips a layer has a place of its own there, so that it runs behind no node.
        for (let layer = k + 1; layer < nodes.get(ids[k + 1]).layer; layer += 1) {
          const place = `${id} ${layer}`;
          nodes.set(place, { layer, empty: true });
          layers[layer].push(place);
          edge.via.push(place);
        }
      }
      edges.get(id).weight += path.contribution;
      edges.get(id).reasons.add(path.reason);
    });
  });
  untangle(layers, [...edges.values()]);
  return { layers, nodes, edges: [...edges.values()] };
}

// Each layer in the order of what leads to it, so that fewer lines cross.
function untangle(layers, edges) {
  const before = new Map();
  for (const { from, via, to } of edges) {
    [...via, to].forEach((id, k) => before.set(id, [...before.get(id) ?? [], [from, ...via][k]]));
  }
  layers.slice(1).forEach((layer, k) => {
    const place = new Map(layers[k].map((id, i) => [id, (i + 0.5) / layers[k].length]));
    const mean = (id) => before.get(id).reduce((all, one) => all + place.get(one), 0) / before.get(id).length;
    layer.sort((a, b) => mean(a) - mean(b));
  });
}

function placed(layers, nodes, width, wide, label) {
  const most = Math.max(...layers.map((layer) => layer.length));
  const n = layers.length;
  const gap = Math.max(70, label + 20); // between layers, so that labels fit in
  const box = wide ? Math.max(84, Math.min(150, (width - 4 - (n - 1) * gap) / n)) : Math.min(160, (width - 4) / most - 8);
  const height = wide ? Math.max(2, most) * (TALL + 20) : n * TALL + (n - 1) * 58 + 4;
  layers.forEach((layer, k) => layer.forEach((id, i) => {
    const along = n === 1 ? 0 : k / (n - 1);
    const across = (i + 0.5) / layer.length;
    const node = nodes.get(id);
    node.x = wide ? 2 + box / 2 + along * (width - 4 - box) : across * width;
    node.y = wide ? across * height : 2 + TALL / 2 + along * (height - 4 - TALL);
  }));
  return { box, height };
}

const kinds = new Map();
function kindClass(type) {
  if (type === "user" || type === "item") return `type-${type}`;
  if (!kinds.has(type)) kinds.set(type, kinds.size % 5);
  return `type-${kinds.get(type)}`;
}

function drawnNode(node, box) {
  const text = lines(node.label, box);
  const top = node.y - TALL / 2;
  return svg("g", { class: "node", "data-reasons": [...node.reasons].join(" ") },
    svg("title", {}, `${kind(node.type)}: ${node.label}`),
    svg("rect", { x: node.x - box / 2, y: top, width: box, height: TALL, rx: 9, class: kindClass(node.type) }),
    svg("text", { x: node.x, y: top + 12, "text-anchor": "middle", class: "kind" }, kind(node.type)),
    text.map((line, k) => svg("text", {
      x: node.x, y: top + (text.length === 1 ? 32 : 26 + 14 * k), "text-anchor": "middle",
    }, line)));
}

function bend([x1, y1], [x2, y2], wide) {
  const [cx, cy] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return wide ? `C${cx} ${y1} ${cx} ${y2} ${x2} ${y2}` : `C${x1} ${cy} ${x2} ${cy} ${x2} ${y2}`;
}

// ── labels of lines ─────────────────────────────────────────────────────────────────────

const LABEL = 11; // px
const PLACES = [0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2, 0.88, 0.12];
let pen = null;

function textWidth(text) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${LABEL}px system-ui, "DejaVu Sans", sans-serif`;
  return pen.measureText(text).width;
}

const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;

// A point of the curve from one point to another, as bend draws it.
function along([x1, y1], [x2, y2], t, wide) {
  const [steep, even] = [3 * t * t - 2 * t * t * t, 1.5 * t * (1 - t) + t * t * t];
  return wide ? [x1 + (x2 - x1) * even, y1 + (y2 - y1) * steep] : [x1 + (x2 - x1) * steep, y1 + (y2 - y1) * even];
}

// Where a label meets no node and no other label; null if there is no such place (its line still has a title).
function freePlace(points, text, taken, wide, bounds) {
  const w = textWidth(text) + 6;
  const h = LABEL + 4;
  const pieces = points.slice(1).map((end, k) => [points[k], end]);
  for (const t of PLACES) {
    for (const [start, end] of pieces) {
      const [x, y] = along(start, end, t, wide);
      for (const up of wide ? [6, -11, 20, -25] : [-4, 6, -14]) {
        const box = { x: Math.min(Math.max(x - w / 2, 0), bounds.width - w), y: y - up - LABEL, w, h };
        if (box.y < 0 || box.y + h > bounds.height) continue;
        if (taken.every((other) => apart(box, other))) return { ...box, at: [box.x + w / 2, y - up] };
      }
    }
  }
  return null;
}

function verbOf(relation, wide) {
  const text = verb(relation);
  if (!text) return "";
  const back = relation.endsWith("⁻¹");
  return wide ? (back ? `← ${text}` : `${text} →`) : (back ? `↑ ${text}` : `${text} ↓`);
}

// The points that a line goes through, from node to node.
function route(edge, nodes, box, wide) {
  const a = nodes.get(edge.from);
  const b = nodes.get(edge.to);
  const half = wide ? [box / 2, 0] : [0, TALL / 2];
  const stops = edge.via.map((id) => nodes.get(id))
    .flatMap(({ x, y }) => [[x - half[0], y - half[1]], [x + half[0], y + half[1]]]);
  return [[a.x + half[0], a.y + half[1]], ...stops, [b.x - half[0], b.y - half[1]]];
}

function drawnEdge(edge, nodes, points, most, wide) {
  const curve = points.slice(1).reduce((all, point, k) => all + bend(points[k], point, wide), `M${points[0].join(" ")}`);
  const [a, b] = [nodes.get(edge.from), nodes.get(edge.to)];
  return svg("path", {
    d: curve, class: "edge", "stroke-width": 1.5 + 10 * Math.max(0, edge.weight) / most,
    "data-reasons": [...edge.reasons].join(" "),
  }, svg("title", {}, `${a.label} ${verbOf(edge.relation, wide) || "–"} ${b.label}: ${number(edge.weight)}`));
}

// What the lines from each layer to the next say: once if it is the same of all, above them where there is
// room for that; else line by line.
function toLabel(edges, nodes, wide) {
  const from = new Map();
  edges.forEach((edge, k) => {
    const { layer } = nodes.get(edge.from);
    from.set(layer, [...from.get(layer) ?? [], { k, text: verbOf(edge.relation, wide), weight: edge.weight }]);
  });
  return [...from].flatMap(([layer, all]) => {
    if (new Set(all.map(({ text }) => text)).size > 1) return all;
    const strongest = all.reduce((best, one) => (one.weight > best.weight ? one : best));
    return [wide ? { text: strongest.text, layer } : strongest];
  }).filter(({ text }) => text);
}

function drawnLabels(labels, routes, nodes, layers, box, wide, bounds) {
  const taken = [...nodes.values()].filter((node) => !node.empty)
    .map(({ x, y }) => ({ x: x - box / 2, y: y - TALL / 2, w: box, h: TALL }));
  // Between two layers, as high as the highest node of both.
  const above = (layer) => {
    const [a, b] = [layer, layer + 1].map((k) => layers[k].map((id) => nodes.get(id)));
    return [(a[0].x + b[0].x) / 2, Math.min(...[...a, ...b].map(({ y }) => y)) - TALL / 2 + LABEL];
  };
  return labels.map(({ k, layer, text }) => {
    const place = layer === undefined ? freePlace(routes[k], text, taken, wide, bounds) : { at: above(layer) };
    if (!place) return null;
    if (place.w) taken.push(place);
    return svg("text", { x: place.at[0], y: place.at[1], "text-anchor": "middle", class: "verb" }, text);
  });
}

// ── the picture ─────────────────────────────────────────────────────────────────────────

const MOST = { wide: 6, narrow: 3 };
const REASONS = 5;

// The paths to draw, the strongest first: of each of the first reasons the strongest, then the next ones.
export function chosen(record, most) {
  const ofReason = record.reasons.filter((reason) => reason.total > 0).slice(0, REASONS)
    .map((reason, number) => reason.evidence.flatMap((evidence) => evidence.paths)
      .map((path) => ({ ...path, reason: number })).sort(stronger));
  const first = ofReason.flatMap((paths) => paths.slice(0, 1)).sort(stronger);
  const next = ofReason.flatMap((paths) => paths.slice(1)).sort(stronger);
  return [...first, ...next].slice(0, most).sort(stronger);
}

const stronger = (a, b) => b.contribution - a.contribution;

export function picture(record, width) {
  const wide = width >= 600;
  const paths = chosen(record, wide ? MOST.wide : MOST.narrow);
  if (!paths.length) return null;
  const { layers, nodes, edges } = laid(paths);
  const labels = toLabel(edges, nodes, wide);
  const longest = Math.max(0, ...labels.map(({ text }) => textWidth(text)));
  const { box, height } = placed(layers, nodes, width, wide, longest);
  const most = Math.max(1e-12, ...edges.map((edge) => edge.weight));
  const routes = edges.map((edge) => route(edge, nodes, box, wide));
  return h("div", { class: "picture" }, svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": say("{paths} to {item}; the list below describes them", { paths: plural(paths.length, "path"), item: record.label }),
  },
  edges.map((edge, k) => drawnEdge(edge, nodes, routes[k], most, wide)),
  [...nodes.values()].filter((node) => !node.empty).map((node) => drawnNode(node, box)),
  drawnLabels(labels, routes, nodes, layers, box, wide, { width, height })));
}

// Mark what belongs to some reasons, in the picture and in the list of actions; none: nothing.
function light(root, reasons) {
  const wanted = new Set(reasons.map(String));
  for (const part of root.querySelectorAll("[data-reasons]")) {
    part.classList.toggle("lit", part.dataset.reasons.split(" ").some((reason) => wanted.has(reason)));
  }
}

// Whatever belongs to a reason marks all that does while the mouse is over it or the focus on it.
export function lightTogether(root) {
  for (const part of root.querySelectorAll("[data-reasons]")) {
    const own = part.dataset.reasons.split(" ");
    const on = () => light(root, own);
    const off = () => light(root, []);
    for (const [begin, end] of [["mouseenter", "mouseleave"], ["focusin", "focusout"]]) {
      part.addEventListener(begin, on);
      part.addEventListener(end, off);
    }
  }
}
