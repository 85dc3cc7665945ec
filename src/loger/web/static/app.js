// The app: who it is about, what is switched off, which item is being looked at.

import { get, post } from "/static/api.js";
import { byId, h, plural, show, signed } from "/static/dom.js";
import { picker } from "/static/picker.js";
import { reasons } from "/static/reasons.js";
import { drawCompare, drawRules } from "/static/rules.js";

const K = 10;
const PATHS = 8;
const state = {
  about: null, rules: [], ruleIds: new Map(),
  user: null, // {name, label} of a known user; null: a new one
  history: [], // of the known user, from the server
  extra: [], // items added here
  off: new Set(), // items switched off
  offRules: new Set(),
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

const changed = () => state.off.size || state.offRules.size || (state.user && state.extra.length);
const nobody = () => !state.user && !state.extra.length;

async function refresh() {
  remember();
  drawHistory();
  drawChanges();
  if (nobody()) return drawNobody();
  const mine = ++asked;
  const body = { ...who(), k: K, paths: 0 };
  const answer = changed() ? await post("what-if", body) : await post("recommendations", body);
  if (mine !== asked) return;
  state.list = answer.after ?? answer.items;
  drawList(answer.gone ?? [], Boolean(answer.after));
  await explain(state.item && state.item !== "" ? state.item : state.list[0]?.item, mine);
}

async function explain(item, mine = ++asked) {
  if (!item) return show(byId("reasons"), h("p", { class: "quiet" }, "There is nothing left to recommend."));
  state.item = item;
  remember();
  const listed = state.list.some((row) => row.item === item);
  const why = listed ? null : await post("why-not", { ...who(), item, k: K });
  const record = await post("explain", { ...who(), item, paths: PATHS, reasons: "all" });
  if (mine !== asked) return;
  for (const button of byId("list").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.item === item));
  }
  reasons(byId("reasons"), record, { ruleIds: state.ruleIds, off: state.offRules, toggle: toggleRule, why });
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
  Object.assign(state, { user: found, extra: [], off: new Set(), item: null });
  const answer = await get("history", { user: found.name });
  state.user = { name: answer.user, label: answer.label };
  state.history = answer.items;
  await refresh();
}

function chooseNew() {
  Object.assign(state, { user: null, history: [], extra: [], off: new Set(), item: null });
  return refresh();
}

// ── drawing ─────────────────────────────────────────────────────────────────────────────

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
      h("span", {}, row.label, row.time ? h("small", {}, day(row.time)) : null)),
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

function drawList(gone, compared) {
  byId("list-title").textContent = `For ${state.user ? state.user.label : "the new user"}`;
  show(byId("list"), state.list.map((row) => h("li", {}, h("button", {
    type: "button", "data-item": row.item, "aria-pressed": String(row.item === state.item),
    onclick: () => explain(row.item).then(reveal),
  },
  h("span", { class: "rank" }, String(row.rank)),
  h("span", { class: "label" }, row.label, compared ? move(row) : null),
  h("span", { class: "score", title: "beside the mean item" }, signed(row.explanation.lead, 2)),
  h("span", { class: "because" }, row.explanation.because)))));
  const names = gone.map((row) => row.label).join(", ");
  byId("gone").textContent = gone.length ? `Gone from the list: ${names}` : "";
  const moved = state.list.filter((row) => compared && row.before !== row.rank).length;
  byId("status").textContent = `${plural(state.list.length, "recommendation")}${compared ? `, ${moved} moved` : ""}`;
}

// On a phone the reasons are below the list: go there.
function reveal() {
  const place = byId("reasons");
  if (place.getBoundingClientRect().top > window.innerHeight * 0.7) {
    place.scrollIntoView({ block: "start" });
    place.focus({ preventScroll: true });
  }
}

function drawNobody() {
  asked += 1;
  state.list = [];
  byId("list-title").textContent = "Recommendations";
  byId("gone").textContent = "";
  show(byId("list"));
  show(byId("reasons"), h("p", { class: "quiet" }, "Add an item that the new user has to see recommendations."));
}

function showView(view) {
  state.view = view;
  for (const name of ["people", "rules", "compare"]) byId(name).hidden = name !== view;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (view === "rules") drawRules(state.rules, state.offRules, toggleRule);
  if (view === "compare") drawCompare(state.user);
  remember();
}

// ── the address keeps where one is ──────────────────────────────────────────────────────

function remember() {
  const where = new URLSearchParams();
  if (state.view !== "people") where.set("view", state.view);
  if (state.user) where.set("user", state.user.name);
  if (state.item) where.set("item", state.item);
  history.replaceState(null, "", `#${where}`);
}

async function begin() {
  const where = new URLSearchParams(location.hash.slice(1));
  state.about = await get("about");
  const { users, items, facts } = state.about;
  byId("about").textContent = `${plural(users, "user")} · ${plural(items, "item")} · ${plural(facts, "fact")}`;
  state.rules = (await get("rules")).rules;
  state.ruleIds = new Map(state.rules.map((rule) => [rule.rule, rule.id]));
  const field = picker(byId("find-user"), {
    label: "Find a user", kind: "users", hint: "Type a name", chosen: chooseUser, keep: true,
  });
  picker(byId("add-item"), { label: "Add an item", kind: "items", hint: "Type an item", chosen: addItem });
  picker(byId("why-not"), {
    label: "Why not …?", kind: "items", hint: "Type an item", chosen: (found) => explain(found.name).then(reveal),
  });
  byId("new").disabled = !state.about.takes_new_users;
  byId("new").addEventListener("click", chooseNew);
  byId("known").addEventListener("click", () => start(field, null, null));
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("click", () => showView(button.dataset.view));
  }
  await start(field, where.get("user"), where.get("item"));
  if (["rules", "compare"].includes(where.get("view"))) showView(where.get("view"));
  document.body.dataset.ready = "yes";
}

async function start(field, name, item) {
  const first = name ? { name, label: name } : (await get("users", { limit: 1 })).results[0];
  if (!first) return chooseNew();
  await chooseUser(first).catch(() => (name ? start(field, null, null) : null));
  field.set(state.user.label);
  if (item) await explain(item).catch(() => null);
  return null;
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (width !== window.innerWidth && state.item && !nobody()) explain(state.item);
  width = window.innerWidth;
});

begin();
