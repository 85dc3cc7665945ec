// The app: who it is about, what is switched off, which item is being looked at.

import { get, post, speak } from "/static/api.js";
import { byId, h, plural, show, signed, words } from "/static/dom.js";
import { picker } from "/static/picker.js";
import { reasons, testing } from "/static/reasons.js";
import { drawCompare, drawRules } from "/static/rules.js";

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
  language: "", // of sentences; "": the browser's
  other: null, // the second person in Compare
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

async function refresh() {
  remember();
  drawHistory();
  drawChanges();
  if (state.missing) return null;
  if (nobody()) return drawNobody();
  const mine = ++asked;
  const body = { ...who(), ...filters(), k: state.k, paths: 0, style: "tile" };
  const answer = changed() ? await post("what-if", body) : await post("recommendations", body);
  if (mine !== asked) return;
  state.list = answer.after ?? answer.items;
  drawList(answer.gone ?? [], Boolean(answer.after), answer.left_out ?? []);
  await explain(state.item && state.item !== "" ? state.item : state.list[0]?.item, mine);
}

async function explain(item, mine = ++asked) {
  if (!item) return show(byId("reasons"), h("p", { class: "quiet" }, "There is nothing left to recommend."));
  state.item = item;
  remember();
  const listed = state.list.some((row) => row.item === item);
  const why = listed ? null : await post("why-not", { ...who(), item, k: state.k });
  const [record, known] = await Promise.all([
    post("explain", { ...who(), item, paths: PATHS, reasons: "all" }), get("facts", { item }),
  ]);
  if (mine !== asked) return;
  for (const button of byId("list").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.item === item));
  }
  reasons(byId("reasons"), record, { ruleIds: state.ruleIds, off: state.offRules, toggle: toggleRule, why, known,
    without: listed ? () => post("counterfactual", { ...who(), item, k: state.k }) : null, remove: removeItems,
    id: idOf(record) });
}

// Switch off the interactions of a counterfactual, to see the list without them.
function removeItems(items) {
  items.forEach((item) => state.off.add(item));
  return refresh();
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
    extra: [], off: new Set(), item: null, missing: null,
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

// A filter as it is written; one that cannot be read is told, and not kept.
async function addText(how, text) {
  const kept = state[how];
  state[how] = [...kept.filter((one) => one.text !== text), { text }];
  state.item = null;
  try {
    await refresh();
  } catch (error) {
    state[how] = kept;
    await refresh();
    throw error;
  }
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
  byId("history-title").textContent = known ? `What ${state.user.label} has` : "What the new user has";
  byId("history-hint").textContent = known ? "Untick an item to see the list without it." : "Add a few items below.";
  const rows = [...state.extra.map((row) => ({ ...row, added: true })), ...state.history];
  const focus = document.activeElement?.dataset?.owned;
  show(byId("history"), rows.map((row) => h("li", {},
    h("label", { class: state.off.has(row.item) ? "off" : "" },
      h("input", {
        type: "checkbox", checked: !state.off.has(row.item), "data-owned": row.item, onchange: () => toggleItem(row.item),
      }),
      h("span", {}, row.label, idOf(row), row.time ? h("small", {}, day(row.time)) : null)),
    row.added ? h("button", {
      type: "button", class: "plain", "aria-label": `Remove ${row.label}`, onclick: () => forget(row.item),
    }, "×") : null)));
  if (focus) [...byId("history").querySelectorAll("input")].find((box) => box.dataset.owned === focus)?.focus();
}

function drawChanges() {
  const label = (item) => [...state.history, ...state.extra].find((row) => row.item === item)?.label ?? item;
  const rule = (id) => state.rules.find((one) => one.id === id)?.sentence ?? id;
  const chip = (text, undo) => h("button", { type: "button", onclick: undo, "aria-label": `Undo: ${text}` }, `${text} ×`);
  const chips = [
    ...[...state.off].map((item) => chip(`without ${label(item)}`, () => toggleItem(item))),
    ...(state.user ? state.extra : []).map((row) => chip(`with ${row.label}`, () => forget(row.item))),
    ...["include", "exclude"].flatMap((how) => state[how].map((one) => (
      chip(`${how === "include" ? "only" : "no"} ${one.text ?? `${words(one.type)} ${one.label}`}`, () => dropFilter(how, one))))),
    ...[...state.offRules].map((id) => chip(`without the rule “${rule(id)}”`, () => toggleRule(id))),
  ];
  show(byId("changes"), chips.length ? h("div", { class: "chips" }, chips) : null);
}

function move(row) {
  if (row.before === null) return h("span", { class: "move up" }, "new");
  const by = row.before - row.rank;
  if (!by) return null;
  const up = by > 0;
  return h("span", { class: up ? "move up" : "move down", "aria-label": `${up ? "up" : "down"} ${Math.abs(by)}` },
    `${up ? "▲" : "▼"} ${Math.abs(by)}`);
}

function drawList(gone, compared, leftOut) {
  byId("list-title").textContent = `For ${state.user ? state.user.label : "the new user"}`;
  show(byId("list"), state.list.map((row) => h("li", {}, h("button", {
    type: "button", "data-item": row.item, "aria-pressed": String(row.item === state.item),
    onclick: () => explain(row.item).then(reveal),
  },
  h("span", { class: "rank" }, String(row.rank)),
  h("span", { class: "label" }, row.label, idOf(row), compared ? move(row) : null),
  h("span", { class: "score", title: "compared with the average item" }, signed(row.explanation.lead, 2)),
  h("span", { class: "because" }, row.explanation.because),
  placed(row) && h("span", { class: "because quiet" }, placed(row))))));
  const named = (row) => (idOf(row) ? `${row.label} [${row.item}]` : row.label);
  const names = gone.map(named).join(", ");
  const held = leftOut.map((row) => `${named(row)} (${row.rank_by_score} by score): ${row.because}`);
  show(byId("gone"), gone.length ? `Gone from the list: ${names}` : null,
    held.length ? h("div", {}, "Left out for variety:", h("ul", {}, held.map((text) => h("li", {}, text)))) : null);
  const moved = state.list.filter((row) => compared && row.before !== row.rank).length;
  byId("status").textContent = `${plural(state.list.length, "recommendation")}${compared ? `, ${moved} moved` : ""}`;
}

// What variety did to an item's place.
function placed(row) {
  if (!row.variety || row.variety.rank_by_score === row.rank) return null;
  return `${row.variety.rank_by_score} by score: ${row.variety.because}`;
}

// On a phone the reasons are below the list: go there.
function reveal() {
  const place = byId("reasons");
  if (place.getBoundingClientRect().top > window.innerHeight * 0.7) {
    place.scrollIntoView({ block: "start" });
    place.focus({ preventScroll: true });
  }
}

function drawNobody(said = "Add an item that the new user has to see recommendations.") {
  asked += 1;
  state.list = [];
  byId("list-title").textContent = "Recommendations";
  byId("gone").textContent = "";
  byId("status").textContent = said;
  show(byId("list"));
  show(byId("reasons"), h("p", { class: "quiet" }, said));
}

// A link to somebody who is not here says so; it must not show somebody else.
function drawMissing(name, said) {
  Object.assign(state, { user: null, history: [], extra: [], off: new Set(), item: null, missing: name });
  drawHistory();
  byId("known").setAttribute("aria-pressed", "true");
  byId("new").setAttribute("aria-pressed", "false");
  byId("find-user").hidden = false;
  byId("history-title").textContent = "Nobody is chosen";
  byId("history-hint").textContent = "Find a user above.";
  drawNobody(said);
  remember();
}

function showView(view) {
  state.view = view;
  for (const name of ["people", "rules", "compare"]) byId(name).hidden = name !== view;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (view === "rules") drawRules(state.rules, state.offRules, toggleRule);
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
  if (state.diversity) where.set("diversity", state.diversity);
  if (state.limit) where.set("at_most", `${state.limit.name}=${state.limit.most}`);
  if (state.k !== 10) where.set("k", state.k);
  if (state.other) where.set("other", state.other.name);
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
  state.diversity = Math.min(1, Math.max(0, Number(where.get("diversity")) || 0));
  const [, name, most] = /^(.+)=([1-9]\d*)$/.exec(where.get("at_most") ?? "") ?? [];
  if (state.about.filters.includes(name)) state.limit = { name, most: Number(most) };
  if (where.get("other")) state.other = await labelled("users", where.get("other"));
  const extra = present(await Promise.all(where.getAll("with").map((name) => labelled("items", name))));
  return { extra: extra.map((one) => ({ item: one.name, label: one.label, time: null })), off: where.getAll("without") };
}

const LENGTHS = [5, 10, 20, 50];

function drawSettings() {
  const length = byId("length");
  show(length, LENGTHS.map((n) => h("option", { value: n, selected: n === state.k }, String(n))));
  length.addEventListener("change", () => { state.k = Number(length.value); state.item = null; refresh(); });
  const language = byId("language");
  language.value = state.language;
  language.addEventListener("change", async () => {
    state.language = language.value;
    speak(state.language);
    await loadRules();
    await refresh();
  });
  const types = state.about.types.filter((type) => state.about.filters.includes(type));
  const kind = byId("filter-type");
  const kinds = [...new Set([...types, ...state.about.beside, "item"])];
  show(kind, kinds.map((type) => h("option", { value: type }, words(type))));
  drawVariety(types);
  byId("filter-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("filter-text").value.trim();
    if (text) addText(byId("filter-how").value, text).then(() => { byId("filter-text").value = ""; });
  });
  picker(byId("filter-name"), {
    label: "Filter by", kind: "entities", hint: "Type a name", query: () => ({ type: kind.value }),
    chosen: (found) => addFilter(byId("filter-how").value, kind.value, found),
  });
}

function drawVariety(types) {
  const [slider, most, name] = ["diversity", "limit", "limit-name"].map(byId);
  slider.value = state.diversity;
  slider.addEventListener("change", () => { state.diversity = Number(slider.value); state.item = null; refresh(); });
  show(most, ["any", 1, 2, 3, 5].map((n) => h("option", { value: n, selected: n === state.limit?.most }, String(n))));
  show(name, types.map((type) => h("option", { value: type, selected: type === state.limit?.name }, words(type))));
  const limit = () => {
    state.limit = most.value === "any" || !name.value ? null : { name: name.value, most: Number(most.value) };
    state.item = null;
    refresh();
  };
  most.addEventListener("change", limit);
  name.addEventListener("change", limit);
}

async function loadRules() {
  state.rules = (await get("rules")).rules;
  state.ruleIds = new Map(state.rules.map((rule) => [rule.rule, rule.id]));
  if (state.view === "rules") drawRules(state.rules, state.offRules, toggleRule);
}

async function begin() {
  const where = new URLSearchParams(location.hash.slice(1));
  state.about = await get("about");
  const { users, items, facts } = state.about;
  byId("about").textContent = `${plural(users, "user")} · ${plural(items, "item")} · ${plural(facts, "fact")}`;
  byId("testing").hidden = !state.about.held_out;
  byId("testing").textContent = testing(state.about.held_out);
  if (["en", "de", "es"].includes(where.get("language"))) state.language = where.get("language");
  speak(state.language);
  await loadRules();
  const field = picker(byId("find-user"), {
    label: "Find a user", kind: "users", hint: "Type a name", chosen: chooseUser, keep: true,
  });
  picker(byId("add-item"), { label: "Add an item", kind: "items", hint: "Type an item", chosen: addItem });
  picker(byId("why-not"), {
    label: "Why not …?", kind: "items", hint: "Type an item", chosen: (found) => explain(found.name).then(reveal),
  });
  byId("new").disabled = !state.about.takes_new_users;
  byId("new").addEventListener("click", chooseNew);
  byId("known").addEventListener("click", () => start(field, null));
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("click", () => showView(button.dataset.view));
  }
  const kept = await recall(where);
  drawSettings();
  if (where.has("new") && state.about.takes_new_users) {
    Object.assign(state, { extra: kept.extra, off: new Set(kept.off) });
    await refresh();
  } else await start(field, where.get("user"), kept);
  if (where.get("item") && !state.missing) await explain(where.get("item")).catch(() => null);
  if (["rules", "compare"].includes(where.get("view"))) showView(where.get("view"));
  document.body.dataset.ready = "yes";
}

// Begin with a user by name, or else with the first; what was kept of changes applies to them.
async function start(field, name, kept = { extra: [], off: [] }) {
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
  if (width !== window.innerWidth && state.item && !nobody()) explain(state.item);
  width = window.innerWidth;
});

begin();
