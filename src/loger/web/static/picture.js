// The reasons for one item as a picture: user, what lies between, item; width says how much a path gives.

import { h, svg, words } from "/static/dom.js";

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

// Nodes in layers, edges with what goes over them; each knows the paths it belongs to.
function laid(paths) {
  const last = Math.max(...paths.map((path) => path.relations.length));
  const layers = Array.from({ length: last + 1 }, () => []);
  const nodes = new Map();
  const edges = new Map();
  paths.forEach((path, number) => {
    const hops = path.relations.length;
    const ids = path.entities.map((entity, k) => {
      const layer = k === hops ? last : k;
      const id = JSON.stringify([layer, entity.type, entity.name]);
      if (!nodes.has(id)) {
        nodes.set(id, { ...entity, layer, paths: new Set() });
        layers[layer].push(id);
      }
      nodes.get(id).paths.add(number);
      return id;
    });
    path.relations.forEach((relation, k) => {
      const id = JSON.stringify([ids[k], ids[k + 1], relation]);
      if (!edges.has(id)) {
        const edge = { from: ids[k], to: ids[k + 1], relation, weight: 0, paths: new Set(), via: [] };
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
      edges.get(id).paths.add(number);
    });
  });
  return { layers, nodes, edges: [...edges.values()] };
}

function placed(layers, nodes, width, wide) {
  const most = Math.max(...layers.map((layer) => layer.length));
  const n = layers.length;
  const box = wide ? Math.min(150, (width - 4) / n - 70) : Math.min(160, (width - 4) / most - 8);
  const height = wide ? Math.max(2, most) * (TALL + 26) + 8 : n * TALL + (n - 1) * 58 + 4;
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
  return svg("g", { class: "node", "data-paths": [...node.paths].join(" ") },
    svg("title", {}, `${words(node.type)}: ${node.label}`),
    svg("rect", { x: node.x - box / 2, y: top, width: box, height: TALL, rx: 9, class: kindClass(node.type) }),
    svg("text", { x: node.x, y: top + 12, "text-anchor": "middle", class: "kind" }, words(node.type)),
    text.map((line, k) => svg("text", {
      x: node.x, y: top + (text.length === 1 ? 32 : 26 + 14 * k), "text-anchor": "middle",
    }, line)));
}

function bend([x1, y1], [x2, y2], wide) {
  const [cx, cy] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return wide ? `C${cx} ${y1} ${cx} ${y2} ${x2} ${y2}` : `C${x1} ${cy} ${x2} ${cy} ${x2} ${y2}`;
}

function drawnEdge(edge, nodes, most, box, wide, last) {
  const a = nodes.get(edge.from);
  const b = nodes.get(edge.to);
  const [x1, y1] = wide ? [a.x + box / 2, a.y] : [a.x, a.y + TALL / 2];
  const [x2, y2] = wide ? [b.x - box / 2, b.y] : [b.x, b.y - TALL / 2];
  const half = wide ? [box / 2, 0] : [0, TALL / 2];
  const stops = edge.via.map((id) => nodes.get(id))
    .flatMap(({ x, y }) => [[x - half[0], y - half[1]], [x + half[0], y + half[1]]]);
  const points = [[x1, y1], ...stops, [x2, y2]];
  const curve = points.slice(1).reduce((all, [x, y], k) => all + bend(points[k], [x, y], wide), `M${x1} ${y1}`);
  // The label where lines are apart: away from the user, away from the item.
  const t = a.layer === 0 ? 0.7 : b.layer === last ? 0.3 : 0.45;
  const [steep, even] = [3 * t * t - 2 * t * t * t, 1.5 * t * (1 - t) + t * t * t];
  const between = wide ? [x1 + (x2 - x1) * even, y1 + (y2 - y1) * steep] : [x1 + (x2 - x1) * steep, y1 + (y2 - y1) * even];
  const stop = nodes.get(edge.via[0]);
  const [lx, ly] = stop ? [stop.x, stop.y] : between;
  const back = edge.relation.endsWith("⁻¹");
  const verb = words(edge.relation);
  const label = wide ? (back ? `← ${verb}` : `${verb} →`) : (back ? `↑ ${verb}` : `${verb} ↓`);
  return [
    svg("path", {
      d: curve, class: "edge", "stroke-width": 1.5 + 10 * edge.weight / most, "data-paths": [...edge.paths].join(" "),
    }, svg("title", {}, `${words(a.label)} ${label} ${words(b.label)}: ${edge.weight.toFixed(3)}`)),
    svg("text", { x: lx, y: ly - (wide ? 6 : -4), "text-anchor": "middle", class: "verb" }, label),
  ];
}

export const MOST = { wide: 6, narrow: 3 };

export function picture(explanation, width) {
  const wide = width >= 600;
  const paths = explanation.paths.slice(0, wide ? MOST.wide : MOST.narrow);
  if (!paths.length) return null;
  const { layers, nodes, edges } = laid(paths);
  const { box, height } = placed(layers, nodes, width, wide);
  const most = Math.max(...edges.map((edge) => edge.weight));
  const drawn = edges.map((edge) => drawnEdge(edge, nodes, most, box, wide, layers.length - 1));
  return h("div", { class: "picture" }, svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${paths.length} paths lead to ${explanation.label}; the sentences below say them`,
  },
  drawn.map(([curve]) => curve),
  [...nodes.values()].filter((node) => !node.empty).map((node) => drawnNode(node, box)),
  drawn.map(([, label]) => label)));
}

// Mark one path in the picture, or none.
export function light(root, number) {
  for (const part of root.querySelectorAll("[data-paths]")) {
    part.classList.toggle("lit", number !== null && part.dataset.paths.split(" ").includes(String(number)));
  }
}
