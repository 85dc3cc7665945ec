// What axe would look for first: names, unique ids, order of headings, contrast of text.
const wrong = [];
const seen = (e) => e.getClientRects().length > 0;
const name = (e) => (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim();
for (const e of document.querySelectorAll('button, a, input, summary, [role=img]')) {
  if (seen(e) && !name(e)) wrong.push(['no name', e.outerHTML.slice(0, 90)]);
}
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
if (new Set(ids).size < ids.length) wrong.push(['an id twice']);
for (const e of document.querySelectorAll('[aria-labelledby], [aria-controls], label[for]')) {
  for (const a of ['aria-labelledby', 'aria-controls', 'for']) {
    const id = e.getAttribute(a);
    if (id && !document.getElementById(id)) wrong.push(['leads nowhere', a, id]);
  }
}
if (!document.documentElement.lang || !document.title) wrong.push(['no language or title']);
if (document.querySelectorAll('main').length !== 1 || document.querySelectorAll('h1').length !== 1) wrong.push(['main, h1']);
let level = 1;
for (const e of document.querySelectorAll('h1, h2, h3')) {
  if (!seen(e)) continue;
  if (+e.tagName[1] > level + 1) wrong.push(['heading jumps', e.textContent]);
  level = +e.tagName[1];
}
const rgb = (c) => (c.match(/[\d.]+/g) || []).map(Number);
const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((s, v, k) => s + v * [0.2126, 0.7152, 0.0722][k], 0);
function behind(e) {
  for (let p = e; p; p = p.parentElement) {
    const c = rgb(getComputedStyle(p).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return [255, 255, 255];
}
for (const e of document.querySelectorAll('body *:not(script):not(svg *)')) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !seen(e) || e.closest('.unseen, .skip')) continue;
  const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) wrong.push(['contrast', ratio.toFixed(2), e.outerHTML.slice(0, 90)]);
}
return wrong;
