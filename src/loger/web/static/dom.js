// Making elements. Text goes in as text, never as markup: names come from data.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.endsWith("%")) element.style[name.slice(0, -1)] = `${value}%`;
    else if (name in element && typeof value === "boolean") element[name] = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
export const show = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));

let timer;
export function problem(text) {
  const place = byId("problem");
  place.textContent = text;
  place.hidden = !text;
  clearTimeout(timer);
  if (text) timer = setTimeout(() => { place.hidden = true; }, 8000);
}
