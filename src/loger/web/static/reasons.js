// Why an item has its score: action by action, as a picture, as sentences, by rule.

import { h, number, plural, show, signed } from "/static/dom.js";
import { blob as picked } from "/static/api.js";
import { lightTogether, picture } from "/static/picture.js";

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

// ── by action ───────────────────────────────────────────────────────────────────────────

const BARS = 12; // actions with a bar of their own

// From the average item to the score, by the record's rows, which add up: appeal, what is opaque,
// every action, the strongest first.
function steps(record) {
  const rows = (kind) => record.rows.filter((row) => row.kind === kind);
  const out = [...rows("appeal"), ...rows("opaque")].map((row) => ({ name: row.label, value: row.contribution }));
  const own = rows("reason").map(({ contribution: value }, k) => ({ name: record.reasons[k].action, value, reason: record.reasons[k], number: k }));
  out.push(...own.slice(0, BARS));
  const rest = [...own.slice(BARS).map((step) => step.value), ...rows("others").map((row) => row.contribution)];
  const name = own.length > BARS ? plural(own.length - BARS, "other action") : rows("others")[0]?.label;
  if (rest.length) out.push({ name, value: rest.reduce((all, value) => all + value, 0) });
  let at = 0;
  for (const step of out) {
    step.from = at;
    at += step.value;
    step.to = at;
  }
  return out;
}

function bar(from, to, low, high, className) {
  const share = (x) => 100 * (x - low) / (high - low || 1);
  const [left, right] = [Math.min(from, to), Math.max(from, to)].map(share);
  return h("div", { class: "track" }, h("i", { class: className, "left%": left, "width%": Math.max(0.6, right - left) }));
}

function evidence(reason) {
  const rows = reason.evidence.map((part) => ({ value: part.contribution, text: part.text, paths: part.paths }));
  if (reason.encoder) {
    rows.push({ value: reason.encoder, text: "similar overall (learned; no single fact behind it)", paths: [] });
  }
  rows.sort((a, b) => b.value - a.value);
  if (reason.mean) rows.push({ value: -reason.mean, text: "what its paths give the average item", paths: [] });
  return h("ul", { class: "evidence" }, rows.map((row) => h("li", {},
    h("span", { class: "number" }, signed(row.value)),
    h("span", {}, row.text, row.paths.map((path) => h("small", {}, path.sentence))))));
}

function action(step, low, high, open) {
  const { reason, number } = step;
  const id = `evidence-${number}`;
  const told = h("div", { id, hidden: !open }, evidence(reason));
  const toggle = (event) => {
    told.hidden = !told.hidden;
    event.currentTarget.setAttribute("aria-expanded", String(!told.hidden));
  };
  return h("li", { "data-reasons": String(number), "data-value": step.value },
    h("button", { type: "button", "aria-expanded": String(open), "aria-controls": id, onclick: toggle },
      h("span", { class: "what" }, `${step.name} `, reason.share >= 0 && reason.share <= 1 ? h("small", {}, percent(reason.share)) : null),
      h("span", { class: "number" }, signed(step.value)),
      bar(step.from, step.to, low, high, step.value < 0 ? "against" : "for")),
    told);
}

function waterfall(record) {
  const all = steps(record);
  const ends = [0, record.lead, ...all.map((step) => step.to)];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const still = (name, value, from, to, className, text) => h("li", { class: className ?? null, "data-value": value },
    h("div", { class: "line" },
      h("span", { class: "what" }, name), h("span", { class: "number" }, text), bar(from, to, low, high, value < 0 ? "against" : "for")));
  return h("ol", { class: "waterfall", "aria-label": "What the score is made of" },
    still("the average item", record.mean, 0, 0, "end", number(record.mean)),
    all.map((step) => (step.reason
      ? action(step, low, high, step.number === 0)
      : still(step.name, step.value, step.from, step.to, null, signed(step.value)))),
    still("score", record.score, 0, record.lead, "end", number(record.score)));
}

const percent = (share) => `${number(100 * share, 0)}\u00a0%`;

function carried(record) {
  if (!record.reasons.some((reason) => reason.total > 0)) return h("p", {}, record.because);
  if (record.lead <= 0) return h("p", { class: "quiet" }, "Even so, it's below the average item.");
  const part = record.carried > 1 ? "the whole lead" : `${percent(record.carried)} of the lead`;
  const against = record.carried_of_actions > 1;  // more than all actions give
  return h("p", { class: "quiet" }, `The strongest actions explain ${part} over the average item${
    against ? "; the rest of the history counts against it" : ""}.`);
}

function sentences(record) {
  if (!record.paths.length) return null;
  const paths = [...record.paths].sort((a, b) => b.contribution - a.contribution);
  const further = record.rules.reduce((all, part) => all + part.paths, 0) - paths.length;
  return h("details", { class: "paths" },
    h("summary", {}, "Paths as sentences"),
    h("ol", { class: "because-list" }, paths.map((path) => h("li", {},
      h("span", { class: "number" }, signed(path.contribution)), h("span", {}, path.sentence)))),
    further > 0 ? h("p", { class: "quiet" }, `and ${plural(further, "weaker path")}`) : null);
}

// ── by rule ─────────────────────────────────────────────────────────────────────────────

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

// The fewest actions without which the item would not be listed; asked for, since it takes a search.
function counterfactual(ask, remove) {
  const said = h("div", { role: "status" });
  const search = async (event) => {
    event.currentTarget.disabled = true;
    show(said, h("p", { class: "quiet" }, "Searching …"));
    try {
      const found = await ask();
      show(said, h("p", {}, found.text), found.without.length
        ? h("button", { type: "button", class: "plain", onclick: () => remove(found.without) }, "Show that list") : null);
    } catch (error) {
      show(said, h("p", {}, error.message));
    }
  };
  return h("div", { class: "counterfactual" },
    h("button", { type: "button", onclick: search }, "Without which actions would it not be here?"), said);
}

// What is known of the item, so that two of one name can be told apart.
function known(record, { facts, image }) {
  const rows = facts.filter((fact) => fact.entities.length);
  const drawn = image ? photograph(record) : null;
  if (!rows.length) return drawn;
  const names = (fact) => fact.entities.slice(0, 6).map((one) => one.label).join(", ")
    + (fact.count > 6 ? ` and ${(fact.count - 6).toLocaleString("en")} more` : "");
  const few = rows.slice(0, 3).map((fact) => `${fact.words}: ${names(fact)}`).join(" · ");
  return [drawn, h("details", { class: "facts" }, h("summary", {}, few || "Facts"),
    h("dl", {}, h("div", {}, h("dt", {}, "id"), h("dd", {}, record.item)),
      rows.map((fact) => h("div", {}, h("dt", {}, fact.words), h("dd", {}, names(fact))))))];
}

// The item's picture, fetched with the key that the server may ask for; gone if it cannot be had.
function photograph(record) {
  const shown = h("img", { class: "photograph", alt: `Picture of ${record.label}`, hidden: true });
  picked("images", { item: record.item }).then((blob) => {
    shown.src = URL.createObjectURL(blob);
    shown.addEventListener("load", () => { shown.hidden = false; URL.revokeObjectURL(shown.src); }, { once: true });
  }, () => shown.remove());
  return shown;
}

// What a model with a test part says of itself.
export const testing = (n) =>
  `A model for testing, not for use: ${number(n, 0)} interactions were held out, and it does not know them.`;

export function reasons(place, record, { ruleIds, off, toggle, why = null, known: about = { facts: [] }, without = null, remove, id = null }) {
  const width = Math.max(300, Math.floor(place.clientWidth - 34));
  const drawn = picture(record, width);
  const alone = record.rank_without_logic === record.rank ? "" : ` (${record.rank_without_logic} by the encoder alone)`;
  show(place,
    h("h2", {}, record.label, id),
    h("p", { class: "quiet" }, `Rank ${record.rank}${alone}, ${signed(record.lead)} compared with the average item`),
    known(record, about),
    why && whyNot(why),
    waterfall(record),
    carried(record),
    record.held_out ? h("p", { class: "banner" }, testing(record.held_out)) : null,
    without && counterfactual(without, remove),
    drawn,
    drawn && h("p", { class: "quiet" }, "The wider a line, the more its paths give."),
    sentences(record),
    record.rules.length ? h("h3", {}, "By rule: switch one off to see how the list changes") : null,
    sum(record),
    ruleParts(record, ruleIds, off, toggle));
  lightTogether(place);
}
