// Why an item has its score: the sum, the picture, the sentences, the rules.

import { h, number, plural, show, signed } from "/static/dom.js";
import { light, picture } from "/static/picture.js";

function term(name, value, className) {
  return h("div", { class: className ?? "", title: String(value) }, h("b", {}, number(value)), h("span", {}, name));
}

const sign = (text) => h("div", { class: "sign", "aria-hidden": "true" }, text);

// encoder + rules + popularity + prior = score; where p and q are fused, q + α·p = score.
function sum(record) {
  const rules = record.rules.reduce((all, part) => all + part.contribution, 0);
  const added = Math.abs(record.logic - record.logit) < 1e-9;
  const parts = added
    ? [["encoder", record.encoder], ["rules", rules], ["popularity", record.popularity], ["prior", record.prior]]
    : [["encoder", record.encoder], ["α · p of the rules", record.logic]];
  const whole = parts.reduce((all, [, value]) => all + value, 0);
  const off = Math.abs(whole - record.score);
  const row = parts.flatMap(([name, value], k) => [k ? sign("+") : null, term(name, value)]);
  const note = off < 1e-6
    ? "The parts add up to the score exactly; they are shown to three decimals."
    : `The parts differ from the score by ${off}.`;
  return [h("div", { class: "sum" }, row, sign("="), term("score", record.score, "whole")), h("p", { class: "quiet" }, note)];
}

function sentences(record, root) {
  if (!record.paths.length) return h("p", {}, record.because);
  return h("ol", { class: "because-list" }, record.paths.map((path, k) => {
    const item = h("li", {
      tabindex: "0",
      onmouseenter: () => light(root, k), onmouseleave: () => light(root, null),
      onfocus: () => light(root, k), onblur: () => light(root, null),
    }, h("span", { class: "number" }, signed(path.contribution)), h("span", {}, path.sentence));
    return item;
  }));
}

function ruleParts(record, ruleIds, off, toggle) {
  const most = Math.max(1e-9, ...record.rules.map((part) => Math.abs(part.contribution)));
  return h("ul", { class: "parts" }, record.rules.map((part) => {
    const id = ruleIds.get(part.rule);
    return h("li", { class: off.has(id) ? "off" : "" },
      h("input", {
        type: "checkbox", class: "switch", role: "switch", checked: !off.has(id), "data-rule": id,
        "aria-label": `Rule: ${part.sentence}`, onchange: () => toggle(id),
      }),
      h("div", { class: "what" }, part.sentence, " ", h("small", {}, plural(part.paths, "path")),
        h("div", { class: "bar" }, h("i", { "width%": 100 * Math.abs(part.contribution) / most }))),
      h("span", { class: "number" }, signed(part.contribution)));
  }));
}

function whyNot(record) {
  const { explanation, gap, owned, silent, k } = record;
  if (owned) return h("p", {}, "Not in the list because it is already in the history.");
  if (explanation.rank <= k) return null;
  const missing = silent.slice(0, 5).map((rule) => h("li", {},
    h("span", { class: "number" }, signed(rule.gives_on_average)), h("span", {}, rule.sentence)));
  return h("div", {},
    h("p", {}, `Not in the list: ${number(gap)} below the last of ${k}.`),
    missing.length ? [h("h3", {}, "Rules that do not lead to it, with what they add to the listed items on average"),
      h("ul", { class: "because-list" }, missing)] : null);
}

export function reasons(place, record, { ruleIds, off, toggle, why = null }) {
  const width = Math.max(300, Math.floor(place.clientWidth - 34));
  const drawn = picture(record, width);
  const further = record.rules.reduce((all, part) => all + part.paths, 0) - record.paths.length;
  const alone = record.rank_without_logic === record.rank ? "" : ` (${record.rank_without_logic} by the encoder alone)`;
  show(place,
    h("h2", {}, record.label),
    h("p", { class: "quiet" }, `Rank ${record.rank}${alone}`),
    sum(record),
    why && whyNot(why),
    drawn,
    drawn && h("p", { class: "quiet" }, "The wider a line, the more its paths add."),
    h("h3", {}, "Because"),
    sentences(record, place),
    further > 0 ? h("p", { class: "quiet" }, `and ${plural(further, "weaker path")}`) : null,
    record.rules.length ? h("h3", {}, "Rules: switch one off to see how the list changes") : null,
    ruleParts(record, ruleIds, off, toggle));
}
