// The app: who it is about, what is switched off, which item is being looked at.

import { get, post } from "/static/api.js";
import { byId, h, show } from "/static/dom.js";
import { drawItem } from "/static/items.js";
import { picker } from "/static/picker.js";
import { reasons, testing } from "/static/reasons.js";
import { drawCompare, drawRules } from "/static/rules.js";
import { LANGUAGES, kind, learn, number, plural, say, signed, speak } from "/static/words.js";

const PATHS = 8;
const state = {
  about: null, rules: [], ruleIds: new Map(),
  user: null, // {name, label} of a known user; null: a new one
  history: [], // of the known user, from the server
  extra: [], // items added here
  off: new Set(), // items switched off
  offRules: new Set(),
  k: 10,
  include: [], exclude: [], // filters: {type, name, label} or {text}
  diversity: 0, limit: null, // {name, most}
  language: "", // "": the browser's
  style: "sentence", // of the reasons of an item; lists have tiles
  other: null, // the second person in Compare
  shown: null, // {name, label} of the item in Items
  hidden: null, // the row that was hidden last
  missing: null, // the name of a user who does not exist, from the address
  view: "people", item: null, list: [],
};
let asked = 0;

// ── questions to the server ─────────────────────────────────────────────────────────────

function who() {
  const rules = { without_rules: [...state.offRules] };
  const extra = state.extra.map((row) => row.item);
  if (!state.user) return { history: extra, remove: [...state.off], ...rules };
  return {
    user: state.user.name, add: extra.filter((item) => !state.off.has(item)),
    remove: state.history.map((row) => row.item).filter((item) => state.off.has(item)), ...rules,
  };
}

const quoted = (text) => `"${text.replace(/["\\]/g, "\\$&")}"`;
const filterText = (one) => one.text ?? `${one.type}=${quoted(one.name)}`;
const filters = () => ({
  include: state.include.map(filterText), exclude: state.exclude.map(filterText),
  diversity: state.diversity, at_most: state.limit ? { [state.limit.name]: state.limit.most } : {},
});
const changed = () => state.off.size || state.offRules.size || (state.user && state.extra.length);
const nobody = () => !state.user && !state.extra.length;

// Ask for what is shown. Returns the error if there is no answer; then no list is shown, because the old
// one would be that of other settings.
async function refresh() {
  remember();
  drawHistory();
  drawChanges();
  if (state.missing) return null;
  if (nobody()) return drawNobody();
  const mine = ++asked;
  busy(true);
  try {
    const body = { ...who(), ...filters(), k: state.k, paths: 0, style: "tile" };
    const answer = changed() ? await post("what-if", body) : await post("recommendations", body);
    if (mine !== asked) return null;
    state.list = answer.after ?? answer.items;
    drawList(answer.gone ?? [], Boolean(answer.after), answer.left_out ?? []);
    await explain(state.item ?? state.list[0]?.item, mine);
  } catch (error) {
    if (mine === asked) drawFailed(error, refresh);
    return error;
  }
  return null;
}

function busy(on) {
  for (const id of ["list", "reasons"]) byId(id).setAttribute("aria-busy", String(on));
}

async function explain(item, mine = ++asked) {
  if (!item) return drawEmpty();
  const listed = state.list.some((row) => row.item === item);
  const [why, record, known] = await Promise.all([
    listed ? null : post("why-not", { ...who(), item, k: state.k }),
    post("explain", { ...who(), item, paths: PATHS, style: state.style }), get("facts", { item }),
  ]);
  if (mine !== asked) return;
  state.item = item;
  remember();
  busy(false);
  for (const button of byId("list").querySelectorAll("[data-item]")) {
    button.setAttribute("aria-pressed", String(button.dataset.item === item));
  }
  reasons(byId("reasons"), record, { ruleIds: state.ruleIds, off: state.offRules, toggle: toggleRule, why, known,
    every: () => post("explain", { ...who(), item, paths: 0, reasons: "all", style: state.style }),
    without: listed ? () => post("counterfactual", { ...who(), item, k: state.k }) : null, remove: removeItems,
    id: idOf(record), alike: state.about.takes_new_users ? () => openItem({ name: item, label: record.label }) : null });
}

// An item that was asked for: its reasons, and on a phone where they are.
const look = (item) => explain(item).then(reveal, () => busy(false));

// Switch off the interactions of a counterfactual, to see the list without them.
function removeItems(items) {
  items.forEach((item) => state.off.add(item));
  return refresh();
}

// Never show an item to the user again. The server keeps that, and the focus goes to what takes its place.
async function hide(row) {
  const place = state.list.indexOf(row);
  await tell({ kind: "dislike", user: state.user.name, item: row.item });
  state.item = null;
  state.hidden = row;
  if (await refresh()) return;
  (byId("list").querySelectorAll(".hide")[place] ?? byId("unhide"))?.focus();
}

async function unhide() {
  const { item } = state.hidden;
  await tell({ kind: "delete", head: state.user.name, relation: "disliked", tail: item, head_type: "user", tail_type: "item" });
  state.hidden = null;
  await refresh();
  byId("list").querySelector("[data-item]")?.focus();
}

const tell = (event) => post("events", { events: [event] });

// An item and what is like it, wherever it was met.
function openItem(found) {
  state.shown = found;
  showView("items");
  window.scrollTo(0, 0);
}

// ── what a person does ──────────────────────────────────────────────────────────────────

function toggleRule(id) {
  if (!state.offRules.delete(id)) state.offRules.add(id);
  const focus = document.activeElement?.dataset?.rule;
  drawRules(state.rules, state.offRules, toggleRule);
  const again = () => focus && byId(state.view === "rules" ? "rules" : "reasons").querySelector(`[data-rule="${focus}"]`)?.focus();
  if (state.view === "rules") again();
  refresh().then(again);
}

function toggleItem(item) {
  if (!state.off.delete(item)) state.off.add(item);
  refresh();
}

function forget(item) {
  state.extra = state.extra.filter((row) => row.item !== item);
  state.off.delete(item);
  refresh();
}

function addItem(found) {
  const known = [...state.history, ...state.extra].some((row) => row.item === found.name);
  if (!known) state.extra.push({ item: found.name, label: found.label, time: null });
  state.off.delete(found.name);
  refresh();
}

async function chooseUser(found) {
  const answer = await get("history", { user: found.name });
  Object.assign(state, {
    user: { name: answer.user, label: answer.label }, history: answer.items,
    extra: [], off: new Set(), item: null, missing: null, hidden: null,
  });
  await refresh();
}

function chooseNew() {
  Object.assign(state, { user: null, history: [], extra: [], off: new Set(), item: null, missing: null });
  return refresh();
}

function addFilter(how, type, found) {
  const known = state[how].some((one) => one.type === type && one.name === found.name);
  if (!known) state[how].push({ type, name: found.name, label: found.label });
  state.item = null;
  return refresh();
}

// A filter as it is written; whether it was taken. One that cannot be read is told, and not kept.
async function addText(how, text) {
  const kept = state[how];
  state[how] = [...kept.filter((one) => one.text !== text), { text }];
  state.item = null;
  if (!await refresh()) return true;
  state[how] = kept;
  await refresh();
  return false;
}

function dropFilter(how, filter) {
  state[how] = state[how].filter((one) => one !== filter);
  state.item = null;
  return refresh();
}

// ── drawing ─────────────────────────────────────────────────────────────────────────────

// The id of an item, in a catalogue in which several have one title.
const idOf = (row) => (state.about.labels_repeat && row.item !== row.label ? h("small", { class: "id" }, row.item) : null);
const day = (time) => (time > 1e8 ? new Date(time * 1000).toISOString().slice(0, 10) : null);

function drawHistory() {
  const known = Boolean(state.user);
  byId("known").setAttribute("aria-pressed", String(known));
  byId("new").setAttribute("aria-pressed", String(!known));
  byId("find-user").hidden = !known;
  const rows = [...state.extra.map((row) => ({ ...row, added: true })), ...state.history];
  byId("history-title").textContent = known ? say("History of {user}", { user: state.user.label }) : say("History of the new user");
  byId("history-hint").textContent = rows.length
    ? say("{items}. Untick one to see the list without it.", { items: plural(rows.length, "item") })
    : say(known ? "Nothing yet." : "Add a few items below.");
  const focus = document.activeElement?.dataset?.owned;
  show(byId("history"), rows.map((row) => h("li", {},
    h("label", { class: state.off.has(row.item) ? "off" : "" },
      h("input", {
        type: "checkbox", checked: !state.off.has(row.item), "data-owned": row.item, onchange: () => toggleItem(row.item),
      }),
      h("span", {}, row.label, idOf(row), row.time ? h("small", {}, day(row.time)) : null)),
    row.added ? h("button", {
      type: "button", class: "plain", "aria-label": say("Remove {item}", { item: row.label }), onclick: () => forget(row.item),
    }, "×") : null)));
  if (focus) [...byId("history").querySelectorAll("input")].find((box) => box.dataset.owned === focus)?.focus();
  fade();
}

// The history fades where it goes on.
function fade() {
  const list = byId("history");
  list.classList.toggle("more", list.scrollTop + list.clientHeight < list.scrollHeight - 2);
}

function drawChanges() {
  const label = (item) => [...state.history, ...state.extra].find((row) => row.item === item)?.label ?? item;
  const rule = (id) => state.rules.find((one) => one.id === id)?.sentence ?? id;
  const chip = (change, undo) => h("button", { type: "button", onclick: undo, "aria-label": say("Undo: {change}", { change }) }, `${change} ×`);
  const filter = (how, one) => say(how === "include" ? "only {filter}" : "no {filter}", { filter: one.text ?? `${kind(one.type)} ${one.label}` });
  const chips = [
    ...[...state.off].map((item) => chip(say("without {item}", { item: label(item) }), () => toggleItem(item))),
    ...(state.user ? state.extra : []).map((row) => chip(say("with {item}", { item: row.label }), () => forget(row.item))),
    ...["include", "exclude"].flatMap((how) => state[how].map((one) => chip(filter(how, one), () => dropFilter(how, one)))),
    ...[...state.offRules].map((id) => chip(say("without the rule “{rule}”", { rule: rule(id) }), () => toggleRule(id))),
  ];
  show(byId("changes"), chips.length ? h("div", { class: "chips" }, chips) : null);
}

function move(row) {
  if (row.before === null) return h("span", { class: "move up" }, say("new"));
  const by = row.before - row.rank;
  if (!by) return null;
  const [up, n] = [by > 0, Math.abs(by)];
  return h("span", { class: up ? "move up" : "move down", role: "img", "aria-label": say(up ? "up {n}" : "down {n}", { n }) },
    `${up ? "▲" : "▼"} ${n}`);
}

function drawList(gone, compared, leftOut) {
  byId("list-title").textContent = state.user ? say("For {user}", { user: state.user.label }) : say("For the new user");
  show(byId("list"), state.list.map((row) => h("li", {}, h("button", {
    type: "button", "data-item": row.item, "aria-pressed": String(row.item === state.item), onclick: () => look(row.item),
  },
  h("span", { class: "rank" }, number(row.rank, 0)),
  h("span", { class: "label" }, row.label, idOf(row), compared ? move(row) : null),
  h("span", { class: "score", title: say("compared with the average item") }, signed(row.explanation.lead, 2)),
  h("span", { class: "because" }, row.explanation.because),
  placed(row) && h("span", { class: "because quiet" }, placed(row))),
  state.user && state.about.takes_events ? h("button", {
    type: "button", class: "plain hide", title: say("Don't show this again"),
    "aria-label": say("Don't show {item} again", { item: row.label }), onclick: () => hide(row).catch(() => null),
  }, "×") : null)));
  const named = (row) => (idOf(row) ? `${row.label} [${row.item}]` : row.label);
  const names = gone.map(named).join(", ");
  const held = leftOut.map((row) => say("{item} (rank {rank} by score): {reason}",
    { item: named(row), rank: row.rank_by_score, reason: row.because }));
  const hidden = state.hidden && h("p", { role: "status" }, say("{item} won't be shown again.", { item: named(state.hidden) }), " ",
    h("button", { type: "button", class: "plain", id: "unhide", onclick: () => unhide().catch(() => null) }, say("Undo")));
  show(byId("gone"), hidden, gone.length ? h("p", {}, say("No longer in the list: {items}", { items: names })) : null,
    held.length ? h("div", {}, say("Left out for variety:"), h("ul", {}, held.map((text) => h("li", {}, text)))) : null);
  const moved = state.list.filter((row) => compared && row.before !== row.rank).length;
  byId("status").textContent = plural(state.list.length, "recommendation")
    + (compared ? `, ${say("{moved} moved", { moved })}` : "");
}

// What variety did to an item's place.
function placed(row) {
  if (!row.variety || row.variety.rank_by_score === row.rank) return null;
  return say("Rank {rank} by score: {reason}", { rank: row.variety.rank_by_score, reason: row.variety.because });
}

// On a phone the reasons are below the list: go there.
function reveal() {
  const place = byId("reasons");
  if (place.getBoundingClientRect().top > window.innerHeight * 0.7) {
    place.scrollIntoView({ block: "start" });
    place.focus({ preventScroll: true });
  }
}

function drawNobody(said = say("Add an item to the history to see recommendations.")) {
  asked += 1;
  state.list = [];
  byId("list-title").textContent = say("Recommendations");
  drawNotice(said);
  return null;
}

function drawEmpty() {
  const filtered = state.include.length || state.exclude.length;
  drawNotice(say(filtered ? "Nothing matches these filters." : "There is nothing left to recommend."));
}

function drawFailed(error, again) {
  drawNotice([say("The recommendations couldn't be loaded."), error.message].join(" "), h("p", {},
    h("button", { type: "button", class: "primary", id: "again", onclick: again }, say("Try again"))));
}

// What is said where the list would be, with something to do about it.
function drawNotice(said, more = null) {
  busy(false);
  byId("status").textContent = said;
  show(byId("list"));
  show(byId("gone"), h("p", { class: "notice" }, said), more);
  show(byId("reasons"), h("p", { class: "quiet" }, said));
}

// A link to somebody who is not here says so; it must not show somebody else.
function drawMissing(name, said) {
  Object.assign(state, { user: null, history: [], extra: [], off: new Set(), item: null, missing: name });
  drawHistory();
  byId("known").setAttribute("aria-pressed", "true");
  byId("new").setAttribute("aria-pressed", "false");
  byId("find-user").hidden = false;
  byId("history-title").textContent = say("Nobody is selected");
  byId("history-hint").textContent = say("Find a user above.");
  drawNobody(said);
  remember();
}

const VIEWS = ["people", "items", "rules", "compare"];

// The item that was chosen, or else the one being looked at.
function drawItems() {
  const row = state.list.find((one) => one.item === state.item) ?? state.list[0];
  state.shown ??= row ? { name: row.item, label: row.label } : null;
  const itemField = picker(byId("find-item"), {
    label: say("Find an item"), kind: "items", hint: say("Type an item"), chosen: openItem, keep: true,
  });
  if (!state.shown) return;
  itemField.set(state.shown.label);
  drawItem(state.shown, openItem);
}

function showView(view) {
  state.view = view;
  for (const name of VIEWS) byId(name).hidden = name !== view;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (view === "rules") drawRules(state.rules, state.offRules, toggleRule);
  if (view === "items") drawItems();
  if (view === "compare") drawCompare(state.user, state.other, (user) => { state.other = user; remember(); });
  remember();
}

// ── the address keeps where one is ──────────────────────────────────────────────────────

// Everything that a person sets: who, what they have, what is switched off, filters, length, view.
function remember() {
  const where = new URLSearchParams();
  if (state.view !== "people") where.set("view", state.view);
  if (state.missing || state.user) where.set("user", state.missing ?? state.user.name);
  else where.set("new", "yes");
  state.extra.forEach((row) => where.append("with", row.item));
  state.off.forEach((item) => where.append("without", item));
  state.offRules.forEach((id) => where.append("off", id));
  for (const how of ["include", "exclude"]) state[how].forEach((one) => where.append(how, filterText(one)));
  if (state.language) where.set("language", state.language);
  if (state.style !== "sentence") where.set("style", state.style);
  if (state.diversity) where.set("diversity", state.diversity);
  if (state.limit) where.set("at_most", `${state.limit.name}=${state.limit.most}`);
  if (state.k !== 10) where.set("k", state.k);
  if (state.other) where.set("other", state.other.name);
  if (state.shown && state.view === "items") where.set("shown", state.shown.name);
  if (state.item) where.set("item", state.item);
  history.replaceState(null, "", `#${where}`);
}

const labelled = async (kind, name) => {
  const { results } = await get(kind, { q: name, limit: 20 }).catch(() => ({ results: [] }));
  return results.find((one) => one.name === name) ?? null;
};

async function filterFrom(text) {
  const [, type, value] = /^([^\s="()]+)="((?:[^"\\]|\\.)*)"$/.exec(text) ?? [];
  if (!type || ![...state.about.types, ...state.about.beside].includes(type)) return { text };
  const name = value.replace(/\\(.)/g, "$1");
  const { results } = await get("entities", { type, q: name, limit: 20 }).catch(() => ({ results: [] }));
  const found = results.find((one) => one.name === name);
  return found ? { type, name, label: found.label } : null;
}

// What the address says, but for the user and the item.
async function recall(where) {
  const present = (rows) => rows.filter(Boolean);
  const length = Number(where.get("k"));
  if (LENGTHS.includes(length)) state.k = length;
  state.offRules = new Set(where.getAll("off").map(Number).filter((id) => state.rules.some((rule) => rule.id === id)));
  for (const how of ["include", "exclude"]) state[how] = present(await Promise.all(where.getAll(how).map(filterFrom)));
  if (where.get("style") === "debug") state.style = "debug";
  state.diversity = Math.min(1, Math.max(0, Number(where.get("diversity")) || 0));
  const [, name, most] = /^(.+)=([1-9]\d*)$/.exec(where.get("at_most") ?? "") ?? [];
  if (state.about.filters.includes(name)) state.limit = { name, most: Number(most) };
  if (where.get("other")) state.other = await labelled("users", where.get("other"));
  if (where.get("shown")) state.shown = await labelled("items", where.get("shown"));
  const extra = present(await Promise.all(where.getAll("with").map((name) => labelled("items", name))));
  return { extra: extra.map((one) => ({ item: one.name, label: one.label, time: null })), off: where.getAll("without") };
}

const LENGTHS = [5, 10, 20, 50];

const select = (id, values, chosen, text = String) => show(byId(id),
  values.map((value) => h("option", { value, selected: value === chosen }, text(value))));

function drawSettings() {
  const types = state.about.types.filter((type) => state.about.filters.includes(type));
  byId("language").value = state.language;
  byId("style").value = state.style;
  byId("diversity").value = state.diversity;
  select("length", LENGTHS, state.k);
  select("filter-type", [...new Set([...types, ...state.about.beside, "item"])], byId("filter-type").value, kind);
  select("limit", ["any", 1, 2, 3, 5], state.limit?.most, (n) => (n === "any" ? say("any number") : n));
  select("limit-name", types, state.limit?.name, kind);
  picker(byId("filter-name"), {
    label: say("Value"), kind: "entities", hint: say("Type a name"), query: () => ({ type: byId("filter-type").value }),
    chosen: (found) => addFilter(byId("filter-how").value, byId("filter-type").value, found),
  });
}

function listen() {
  const setting = (id, change) => byId(id).addEventListener("change", () => {
    change(byId(id).value);
    state.item = null;
    return refresh();
  });
  setting("length", (value) => { state.k = Number(value); });
  setting("diversity", (value) => { state.diversity = Number(value); });
  const limit = () => {
    const [most, name] = [byId("limit").value, byId("limit-name").value];
    state.limit = most === "any" || !name ? null : { name, most: Number(most) };
  };
  setting("limit", limit);
  setting("limit-name", limit);
  byId("language").addEventListener("change", () => {
    state.language = byId("language").value;
    drawAll().catch((error) => drawFailed(error, drawAll));
  });
  byId("style").addEventListener("change", () => { state.style = byId("style").value; return refresh(); });
  byId("filter-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = byId("filter-text").value.trim();
    if (text && await addText(byId("filter-how").value, text)) byId("filter-text").value = "";
  });
  byId("history").addEventListener("scroll", fade);
  byId("new").addEventListener("click", chooseNew);
  byId("known").addEventListener("click", () => start(null).catch(() => null));
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("click", () => showView(button.dataset.view));
  }
  window.addEventListener("online", () => { if (byId("again")) byId("again").click(); });
}

async function loadRules() {
  state.rules = (await get("rules")).rules;
  state.ruleIds = new Map(state.rules.map((rule) => [rule.rule, rule.id]));
}

let field; // in which a user is found

// What is there whoever is looked at, in the reader's language.
async function drawChrome() {
  speak(state.language);
  state.about = await get("about");
  learn(state.about);
  const { users, items, facts, held_out: heldOut } = state.about;
  byId("about").textContent = [plural(users, "user"), plural(items, "item"), plural(facts, "fact")].join(" · ");
  byId("testing").hidden = !heldOut;
  byId("testing").textContent = testing(heldOut);
  byId("new").disabled = !state.about.takes_new_users;
  document.querySelector("[data-view=items]").hidden = !state.about.takes_new_users;
  await loadRules();
  field = picker(byId("find-user"), { label: say("Find a user"), kind: "users", hint: say("Type a name"), chosen: chooseUser, keep: true });
  picker(byId("add-item"), { label: say("Add an item"), kind: "items", hint: say("Type an item"), chosen: addItem });
  picker(byId("why-not"), { label: say("Why not …?"), kind: "items", hint: say("Type an item"), chosen: (found) => look(found.name) });
}

// Everything again, in another language.
async function drawAll() {
  await drawChrome();
  drawSettings();
  field.set(state.user?.label ?? state.missing ?? "");
  show(byId("pair"));
  showView(state.view);
  return refresh();
}

async function begin() {
  const where = new URLSearchParams(location.hash.slice(1));
  if (LANGUAGES.includes(where.get("language"))) state.language = where.get("language");
  await drawChrome();
  listen();
  const kept = await recall(where);
  drawSettings();
  if (where.has("new") && state.about.takes_new_users) {
    Object.assign(state, { extra: kept.extra, off: new Set(kept.off) });
    await refresh();
  } else await start(where.get("user"), kept);
  if (where.get("item") && !state.missing) await explain(where.get("item")).catch(() => busy(false));
  if (VIEWS.includes(where.get("view"))) showView(where.get("view"));
  document.body.dataset.ready = "yes";
}

// Begin with a user by name, or else with the first; what was kept of changes applies to them.
async function start(name, kept = { extra: [], off: [] }) {
  const first = name ? { name } : (await get("users", { limit: 1 })).results[0];
  if (!first) return chooseNew();
  try {
    await chooseUser(first);
  } catch (error) {
    field.set(first.name);
    return drawMissing(first.name, error.message);
  }
  field.set(state.user.label);
  if (kept.extra.length || kept.off.length) {
    const own = new Set([...state.history, ...kept.extra].map((row) => row.item));
    Object.assign(state, { extra: kept.extra, off: new Set(kept.off.filter((item) => own.has(item))) });
    await refresh();
  }
  return null;
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (width !== window.innerWidth && state.item && !nobody()) explain(state.item).catch(() => busy(false));
  width = window.innerWidth;
});

begin().catch((error) => drawFailed(error, () => location.reload()));
