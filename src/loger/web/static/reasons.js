// Why an item has its score: the sum, the picture, the sentences, the rules.

import { h, number, plural, show, signed } from "/static/dom.js";
import { light, picture } from "/static/picture.js";

function term(name, value, className) {
  return h("div", { class: className ?? "", title: String(value) }, h("b", {}, number(value)), h("span", {}, name));
}

const sign = (text) => h("div", { class: "sign", "aria-hidden": "true" }, text);

// encoder + rules + popularity + prior = score; where p and q are fused, q + α·p = score.
function sum(told) {
  const rules = told.rules.reduce((all, part) => all + part.contribution, 0);
  const added = Math.abs(told.logic - told.logit) < 1e-9;
  const parts = added
    ? [["encoder", told.encoder], ["rules", rules], ["popularity", told.popularity], ["prior", told.prior]]
    : [["encoder", told.encoder], ["α · p of the rules", told.logic]];
  const whole = parts.reduce((all, [, value]) => all + value, 0);
  const off = Math.abs(whole - told.score);
  const row = parts.flatMap(([name, value], k) => [k ? sign("+") : null, term(name, value)]);
  const note = off < 1e-6
    ? "The parts add up to the score exactly; nothing was made up afterwards. Shown to three decimals."
    : `The parts miss the score by ${off}.`;
  return [h("div", { class: "sum" }, row, sign("="), term("score", told.score, "whole")), h("p", { class: "quiet" }, note)];
}

function sentences(told, root) {
  if (!told.paths.length) return h("p", {}, told.because);
  return h("ol", { class: "because-list" }, told.paths.map((path, k) => {
    const item = h("li", {
      tabindex: "0",
      onmouseenter: () => light(root, k), onmouseleave: () => light(root, null),
      onfocus: () => light(root, k), onblur: () => light(root, null),
    }, h("span", { class: "number" }, signed(path.contribution)), h("span", {}, path.sentence));
    return item;
  }));
}

function ruleParts(told, ruleIds, off, toggle) {
  const most = Math.max(1e-9, ...told.rules.map((part) => Math.abs(part.contribution)));
  return h("ul", { class: "parts" }, told.rules.map((part) => {
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

function whyNot(told) {
  const { explanation, gap, owned, silent, k } = told;
  if (owned) return h("p", {}, "Left out of the list because it is already in the history.");
  if (explanation.rank <= k) return null;
  const missing = silent.slice(0, 5).map((rule) => h("li", {},
    h("span", { class: "number" }, signed(rule.gives_on_average)), h("span", {}, rule.sentence)));
  return h("div", {},
    h("p", {}, `Not in the list: ${number(gap)} below the last of ${k}.`),
    missing.length ? [h("h3", {}, "Rules that do not lead here, with what they give the listed items on average"),
      h("ul", { class: "because-list" }, missing)] : null);
}

export function reasons(place, told, { ruleIds, off, toggle, why = null }) {
  const width = Math.max(300, Math.floor(place.clientWidth - 34));
  const drawn = picture(told, width);
  const further = told.rules.reduce((all, part) => all + part.paths, 0) - told.paths.length;
  const alone = told.rank_without_logic === told.rank ? "" : ` (${told.rank_without_logic} by the encoder alone)`;
  show(place,
    h("h2", {}, told.label),
    h("p", { class: "quiet" }, `Rank ${told.rank}${alone}`),
    sum(told),
    why && whyNot(why),
    drawn,
    drawn && h("p", { class: "quiet" }, "The wider a line, the more the path gives."),
    h("h3", {}, "Because"),
    sentences(told, place),
    further > 0 ? h("p", { class: "quiet" }, `and ${plural(further, "weaker path")}`) : null,
    told.rules.length ? h("h3", {}, "Rules: switch one off and watch the list") : null,
    ruleParts(told, ruleIds, off, toggle));
}
