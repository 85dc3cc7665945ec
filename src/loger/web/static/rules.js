// All rules with weights and example paths; the profiles of two people side by side.

import { get } from "/static/api.js";
import { byId, h, show } from "/static/dom.js";
import { picker } from "/static/picker.js";
import { number, percent, say } from "/static/words.js";

async function open(details, id) {
  if (!details.open || details.dataset.filled) return;
  details.dataset.filled = "yes";
  const { examples } = await get(`rules/${id}`);
  const sentences = [...new Set(examples.map((example) => example.sentence))]; // other people are all "someone"
  details.append(h("ul", { class: "examples" },
    (sentences.length ? sentences : [say("No example was found.")]).map((sentence) => h("li", {}, sentence))));
}

export function drawRules(rules, off, toggle) {
  const most = Math.max(1e-9, ...rules.map((rule) => Math.abs(rule.weight)));
  if (!rules.length) return show(byId("rule-list"), h("li", {}, say("This model has learned no rules.")));
  show(byId("rule-list"), rules.map((rule) => h("li", {},
    h("input", {
      type: "checkbox", class: "switch", role: "switch", checked: !off.has(rule.id), "data-rule": rule.id,
      "aria-label": say("Rule: {rule}", { rule: rule.sentence }), onchange: () => toggle(rule.id),
    }),
    h("details", { ontoggle: (event) => open(event.currentTarget, rule.id) },
      h("summary", {},
        h("div", { class: "row" }, h("span", {}, rule.sentence), h("span", { class: "number" }, number(rule.weight))),
        h("div", { class: "bar" }, h("i", { "width%": 100 * Math.abs(rule.weight) / most }))),
      h("code", {}, rule.rule),
      measures(rule)))));
}

const share = (x) => (x === null ? "–" : percent(x, x < 0.1 ? 1 : 0));

// How the rule did on the interactions that it was mined from.
function measures(rule) {
  if (rule.support === null) return null;
  const rows = [
    ["support", number(rule.support, 0), "interactions it leads to"],
    ["coverage", share(rule.coverage), "of all interactions"],
    ["precision", share(rule.precision), "of the items it leads to are taken"],
    ["lift", rule.lift === null ? "–" : `${number(rule.lift, 1)}×`, "better than chance"],
    ["weight", number(rule.weight), "learned from held-out interactions"],
  ];
  return h("dl", { class: "measures" }, rows.map(([name, value, said]) => h("div", {},
    h("dt", {}, say(name)), h("dd", {}, h("b", {}, value), " ", h("small", {}, say(said))))));
}

const sides = [null, null];

function side(row, most, left) {
  const value = row?.importance ?? 0;
  return h("div", {}, h("span", { class: "number" }, number(value)),
    h("div", { class: left ? "bar left" : "bar" }, h("i", { "width%": most ? 100 * Math.max(0, value) / most : 0 })));
}

function drawProfiles() {
  if (!sides[0] || !sides[1]) return;
  const [a, b] = sides.map((profile) => new Map(profile.rules.map((row) => [row.id, row])));
  const both = sides[0].rules.map((row) => row.id);
  const size = (id) => Math.max(a.get(id).importance, b.get(id).importance);
  const most = Math.max(...both.map(size));
  both.sort((x, y) => size(y) - size(x));
  show(byId("profiles"),
    h("div", { class: "profile" }, h("div", { class: "sides names" }, h("div", {}, sides[0].label), h("div", {}, sides[1].label))),
    both.map((id) => h("div", { class: "profile" }, a.get(id).sentence,
      h("div", { class: "sides" }, side(a.get(id), most, true), side(b.get(id), most, false)))));
}

// Two people from the start: the one being looked at, and the second, or anybody else.
export async function drawCompare(first, second, remember) {
  if (byId("pair").children.length) return;
  const others = first && !second ? (await get("users", { limit: 2 })).results : [];
  const people = [first, second ?? others.find((one) => one.name !== first?.name) ?? null];
  for (const k of [0, 1]) {
    const place = h("div", {});
    byId("pair").append(place);
    const choose = async (user) => {
      const profile = await get("profile", { user: user.name });
      sides[k] = { ...profile, label: user.label };
      if (k) remember(user);
      drawProfiles();
    };
    const field = picker(place, {
      label: say(k ? "Second user" : "First user"), kind: "users", hint: say("Type a name"), chosen: choose, keep: true,
    });
    if (people[k]) {
      field.set(people[k].label);
      choose(people[k]);
    }
  }
}
