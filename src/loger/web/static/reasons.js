// Why an item has its score: action by action, as a picture, as sentences, by rule.

import { h, show } from "/static/dom.js";
import { blob as picked } from "/static/api.js";
import { lightTogether, picture } from "/static/picture.js";
import { kind, number, percent, plural, say, signed, verb } from "/static/words.js";

function term(name, value, className) {
  return h("div", { class: className ?? "", title: String(value) }, h("b", {}, number(value)), h("span", {}, say(name)));
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
  const difference = Math.abs(whole - record.score);
  const row = parts.flatMap(([name, value], k) => [k ? sign("+") : null, term(name, value)]);
  const note = difference < 1e-6
    ? say("The parts add up to the score.") : say("The parts differ from the score by {difference}.", { difference });
  return [h("div", { class: "sum" }, row, sign("="), term("score", record.score, "whole")), h("p", { class: "quiet" }, note)];
}

// ── by action ───────────────────────────────────────────────────────────────────────────

// From the average item to the score, by the record's rows, which add up.
function steps(record) {
  let at = 0;
  return record.rows.map((row, k) => {
    const from = at;
    at += row.contribution;
    return { ...row, from, to: at, reason: row.kind === "reason" ? record.reasons[k] : null, number: k };
  });
}

function bar(from, to, low, high, className) {
  const share = (x) => 100 * (x - low) / (high - low || 1);
  const [left, right] = [Math.min(from, to), Math.max(from, to)].map(share);
  return h("div", { class: "track" }, h("i", { class: className, "left%": left, "width%": Math.max(0.6, right - left) }));
}

// What a reason is made of: the actions of a group, or the evidence of one action.
function evidence(reason) {
  if (reason.members.length) return actions(reason.members);
  const rows = reason.evidence.map((part) => ({ value: part.contribution, text: part.text, paths: part.paths }));
  if (reason.encoder) {
    rows.push({ value: reason.encoder, text: say("Similar overall (learned; no single fact behind it)"), paths: [] });
  }
  if (reason.sequence) {
    rows.push({ value: reason.sequence, text: say("People who had it went on to things like this"), paths: [] });
  }
  rows.sort((a, b) => b.value - a.value);
  if (reason.mean) rows.push({ value: -reason.mean, text: say("What the same paths contribute to the average item"), paths: [] });
  return h("ul", { class: "evidence" }, rows.map((row) => h("li", {},
    h("span", { class: "number" }, signed(row.value)),
    h("span", {}, row.text, row.paths.map((path) => h("small", {}, path.sentence))))));
}

// A row that opens: what is below it is made when it is opened first.
function opening(step, low, high, made) {
  const id = `below-${step.number}`;
  const below = h("div", { id, hidden: true });
  const toggle = async (event) => {
    below.hidden = !below.hidden;
    event.currentTarget.setAttribute("aria-expanded", String(!below.hidden));
    if (!below.children.length) show(below, await Promise.resolve(made()).catch((error) => h("p", { class: "quiet" }, error.message)));
  };
  const shown = step.reason && step.share > 0 && step.share <= 1;
  return h("li", { "data-reasons": step.reason ? String(step.number) : null, "data-value": step.contribution },
    h("button", { type: "button", "aria-expanded": "false", "aria-controls": id, onclick: toggle },
      h("span", { class: "what" }, step.label),
      h("span", { class: "number" }, signed(step.contribution), shown ? h("small", {}, percent(step.share)) : null),
      bar(step.from, step.to, low, high, step.contribution < 0 ? "against" : "for")),
    below);
}

const actions = (list) => h("ul", { class: "evidence" }, list.map((one) => h("li", {},
  h("span", { class: "number" }, signed(one.total)), h("span", {}, one.text))));

// Every action that is no reason and belongs to none, from the strongest on.
async function others(record, every) {
  const { reasons: all } = await every();
  const named = (one) => `${one.relation} ${one.entity.type} ${one.entity.name}`;
  const shown = new Set(record.reasons.flatMap((one) => [one, ...one.members]).map(named));
  return actions(all.filter((one) => !shown.has(named(one))).map((one) => ({ ...one, text: one.action })));
}

function waterfall(record, every) {
  const all = steps(record);
  const ends = [0, record.lead, ...all.map((step) => step.to)];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const still = (name, value, from, to, className, text) => h("li", { class: className, "data-value": value },
    h("div", { class: "line" },
      h("span", { class: "what" }, name), h("span", { class: "number" }, text), bar(from, to, low, high, value < 0 ? "against" : "for")));
  const row = (step) => {
    if (step.reason) return opening(step, low, high, () => evidence(step.reason));
    if (step.kind === "others") return opening(step, low, high, () => others(record, every));
    return still(step.label, step.contribution, step.from, step.to, null, signed(step.contribution));
  };
  return h("ol", { class: "waterfall", "aria-label": say("What the score is made of") },
    still(say("Average item"), record.mean, 0, 0, "end", number(record.mean)),
    all.map(row),
    still(say("Score"), record.score, 0, record.lead, "end", number(record.score)));
}

function sentences(record) {
  if (!record.paths.length) return null;
  const paths = [...record.paths].sort((a, b) => b.contribution - a.contribution);
  const further = record.rules.reduce((all, part) => all + part.paths, 0) - paths.length;
  return h("details", { class: "paths" },
    h("summary", {}, say("Paths as sentences")),
    h("ol", { class: "because-list" }, paths.map((path) => h("li", {},
      h("span", { class: "number" }, signed(path.contribution)), h("span", {}, path.sentence)))),
    further > 0 ? h("p", { class: "quiet" }, say("and {paths}", { paths: plural(further, "weaker path") })) : null);
}

// ── by rule ─────────────────────────────────────────────────────────────────────────────

function ruleParts(record, ruleIds, off, toggle) {
  const most = Math.max(1e-9, ...record.rules.map((part) => Math.abs(part.contribution)));
  return h("ul", { class: "parts" }, record.rules.map((part) => {
    const id = ruleIds.get(part.rule);
    return h("li", { class: off.has(id) ? "off" : "" },
      h("input", {
        type: "checkbox", class: "switch", role: "switch", checked: !off.has(id), "data-rule": id,
        "aria-label": say("Rule: {rule}", { rule: part.sentence }), onchange: () => toggle(id),
      }),
      h("div", { class: "what" }, part.sentence, " ", h("small", {}, plural(part.paths, "path")),
        h("div", { class: "bar" }, h("i", { "width%": 100 * Math.abs(part.contribution) / most }))),
      h("span", { class: "number" }, signed(part.contribution)));
  }));
}

function whyNot({ explanation, gap, owned, silent, k }) {
  if (owned) return h("p", {}, say("Not in the list because it's already in the history."));
  if (explanation.rank <= k) return null;
  const missing = silent.slice(0, 5).map((rule) => h("li", {},
    h("span", { class: "number" }, signed(rule.gives_on_average)), h("span", {}, rule.sentence)));
  return h("div", {},
    h("p", {}, say("Not in the list: {gap} below number {k}.", { gap: number(gap), k })),
    missing.length ? [h("h3", {}, say("Rules that don't lead to it, and what they contribute to the listed items on average")),
      h("ul", { class: "because-list" }, missing)] : null);
}

// The fewest actions without which the item would not be listed; asked for, since it takes a search.
function counterfactual(ask, remove) {
  const said = h("div", { role: "status" });
  const search = async (event) => {
    event.currentTarget.disabled = true;
    show(said, h("p", { class: "quiet" }, say("Searching …")));
    try {
      const found = await ask();
      show(said, h("p", {}, found.text), found.without.length
        ? h("button", { type: "button", class: "plain", onclick: () => remove(found.without) }, say("Show that list")) : null);
    } catch (error) {
      show(said, h("p", {}, error.message));
    }
  };
  return h("div", { class: "counterfactual" },
    h("button", { type: "button", onclick: search }, say("Which actions keep it in the list?")), said);
}

// What is known of the item, so that two of one name can be told apart.
export function known(record, { facts, image }) {
  const rows = facts.filter((fact) => fact.entities.length);
  const drawn = image ? photograph(record) : null;
  if (!rows.length) return drawn;
  const names = (fact) => {
    const first = fact.entities.slice(0, 6).map((one) => one.label).join(", ");
    return fact.count > 6 ? say("{names} and {n} more", { names: first, n: number(fact.count - 6, 0) }) : first;
  };
  const name = (fact) => (verb(fact.relation) ? fact.words : kind(fact.entities[0].type));
  const few = rows.slice(0, 3).map((fact) => `${name(fact)}: ${names(fact)}`).join(" · ");
  return [drawn, h("details", { class: "facts" }, h("summary", {}, few || say("Facts")),
    h("dl", {}, h("div", {}, h("dt", {}, say("ID")), h("dd", {}, record.item)),
      rows.map((fact) => h("div", {}, h("dt", {}, name(fact)), h("dd", {}, names(fact))))))];
}

// The item's picture, fetched with the key that the server may ask for; gone if it cannot be had.
function photograph(record) {
  const shown = h("img", { class: "photograph", alt: say("Picture of {item}", { item: record.label }), hidden: true });
  picked("images", { item: record.item }).then((blob) => {
    shown.src = URL.createObjectURL(blob);
    shown.addEventListener("load", () => { shown.hidden = false; URL.revokeObjectURL(shown.src); }, { once: true });
  }, () => shown.remove());
  return shown;
}

// What a model with a test part says of itself.
export const testing = (n) => say(
  "For testing only: {n} interactions were held out, so this model doesn't know them.", { n: number(n, 0) });

// The rank, beside that without the rules if there is an encoder to rank by.
function place({ rank, rank_without_logic: alone, encoder, lead }) {
  const said = encoder && alone !== rank ? "Rank {rank} ({alone} without the rules)" : "Rank {rank}";
  const ranked = say(said, { rank: number(rank, 0), alone: number(alone, 0) });
  return say("{place}, {lead} compared with the average item", { place: ranked, lead: signed(lead) });
}

export function reasons(root, record, { ruleIds, off, toggle, every, why = null, known: about = { facts: [] }, without = null, remove, id = null, alike = null }) {
  const width = Math.max(300, Math.floor(root.clientWidth - 34));
  const drawn = picture(record, width);
  show(root,
    h("h2", {}, record.label, id),
    h("p", { class: "quiet" }, place(record)),
    known(record, about),
    alike && h("p", {}, h("button", { type: "button", class: "plain", id: "alike", onclick: alike }, say("Similar items"))),
    why && whyNot(why),
    waterfall(record, every),
    h("p", { class: "quiet summary" }, `${record.summary}.`),
    record.held_out ? h("p", { class: "banner" }, testing(record.held_out)) : null,
    without && counterfactual(without, remove),
    drawn,
    drawn && h("p", { class: "quiet" }, say("The wider the line, the more it contributes.")),
    sentences(record),
    record.rules.length ? [h("h3", {}, say("By rule")), h("p", { class: "quiet" }, say("Switch a rule off to see how the list changes."))] : null,
    sum(record),
    ruleParts(record, ruleIds, off, toggle));
  lightTogether(root);
}
