// A text field that finds users or items while one types: a combobox, usable by keyboard.

import { get } from "/static/api.js";
import { h } from "/static/dom.js";
import { say } from "/static/words.js";

let count = 0;

export function picker(place, { label, kind, hint, chosen, keep = false, query = () => ({}) }) {
  const id = `picker-${++count}`;
  const list = h("div", { role: "listbox", id: `${id}-list`, "aria-label": label, hidden: true });
  const input = h("input", {
    type: "text", id, role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: hint,
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`,
  });
  place.replaceChildren(h("div", { class: "picker" }, h("label", { for: id }, label), input, list));
  let kept = "";
  let options = [];
  let active = -1;
  let asked = 0;

  function close() {
    asked += 1;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(k) {
    active = k;
    [...list.children].forEach((child, i) => child.setAttribute("aria-selected", String(i === k)));
    if (k < 0 || !options.length) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[k].id);
    list.children[k].scrollIntoView({ block: "nearest" });
  }

  // What cannot be had was told already; the field goes back to what is shown.
  async function choose(option) {
    const before = kept;
    kept = input.value = keep ? option.label : "";
    close();
    try {
      await chosen(option);
    } catch {
      kept = input.value = before;
    }
  }

  function option(found, k) {
    const name = found.name === found.label ? null : h("small", {}, found.name);
    return h("div", {
      role: "option", id: `${id}-${k}`, "aria-selected": "false",
      onpointerdown: (event) => { event.preventDefault(); choose(found); },
    }, found.label, name);
  }

  async function search() {
    const mine = ++asked;
    const answer = await get(kind, { ...query(), q: input.value, limit: 12 }).catch(() => null);
    if (!answer || mine !== asked) return;
    options = answer.results;
    const none = h("div", { role: "option", class: "none", "aria-disabled": "true", "aria-selected": "false" },
      say("No match"));
    list.replaceChildren(...(options.length ? options.map(option) : [none]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(options.length && input.value ? 0 : -1);
  }

  input.addEventListener("input", search);
  input.addEventListener("click", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) search();
      else if (options.length) mark((active + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length);
    } else if (event.key === "Enter" && !list.hidden && options[active]) {
      event.preventDefault();
      choose(options[active]);
    }
  });
  return { input, set: (text) => { kept = input.value = text; } };
}
