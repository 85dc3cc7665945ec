// An item by itself: what goes well with it, and what people could take instead, each with its reasons.

import { get } from "/static/api.js";
import { byId, h, show } from "/static/dom.js";
import { known } from "/static/reasons.js";
import { say, signed } from "/static/words.js";

const LENGTH = 6;
const REASONS = 3;
const KINDS = { complements: "Goes well with it", substitutes: "Instead of it" };
let asked = 0;

// The reasons of all members together, strongest first: for a single item there is one member.
const reasonsOf = (row) => row.members.flatMap((member) => member.reasons).slice(0, REASONS);

function rowOf(row, open) {
  return h("li", {},
    h("button", { type: "button", "data-item": row.item, onclick: () => open({ name: row.item, label: row.label }) },
      h("span", { class: "label" }, row.label),
      h("span", { class: "score", title: say("compared with the average item") }, signed(row.score, 2))),
    h("ul", {}, reasonsOf(row).map((reason, _, all) => h("li", {}, reason.text,
      all.length > 1 ? h("span", { class: "number" }, ` ${signed(reason.total, 2)}`) : null))));
}

function listOf(kind, rows, open) {
  const id = `alike-${kind}`;
  const body = rows.length ? h("ol", { class: "alike", "aria-labelledby": id }, rows.map((row) => rowOf(row, open)))
    : h("p", { class: "quiet" }, say("The rules don't lead to any item here."));
  return h("section", { class: "card" }, h("h3", { id }, say(KINDS[kind])), body);
}

// Show an item; open is called with the next one that a person chooses.
export async function drawItem(item, open) {
  const mine = ++asked;
  const place = byId("item");
  place.setAttribute("aria-busy", "true");
  try {
    const path = `items/${encodeURIComponent(item.name)}/similar`;
    const [about, ...lists] = await Promise.all([
      get("facts", { item: item.name }),
      ...Object.keys(KINDS).map((kind) => get(path, { kind, k: LENGTH })),
    ]);
    if (mine !== asked) return;
    // A rule that doesn't lead to an item contributes nothing, so such items aren't listed.
    const led = lists.map((list) => list.items.filter((row) => reasonsOf(row).length));
    show(place, h("div", { class: "card" }, h("h2", { tabindex: "-1" }, about.label), known(about, about)),
      h("div", { class: "sides-by-kind" }, Object.keys(KINDS).map((kind, k) => listOf(kind, led[k], open))));
    // What had the focus is gone if a person chose another item.
    if (document.activeElement === document.body) place.querySelector("h2").focus({ preventScroll: true });
  } catch (error) {
    if (mine === asked) show(place, h("p", { class: "notice" }, error.message));
  } finally {
    if (mine === asked) place.setAttribute("aria-busy", "false");
  }
}
