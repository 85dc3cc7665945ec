// The HTTP API of this server; see /docs.

import { byId, problem } from "/static/dom.js";
import { say, spoken } from "/static/words.js";

const KEY = "loger-key";

function askForKey() {
  const dialog = byId("key-dialog");
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, byId("key").value);
      done();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

async function call(method, path, body) {
  const headers = { Accept: "application/json", "Accept-Language": spoken() };
  const key = sessionStorage.getItem(KEY);
  if (key) headers["X-API-Key"] = key;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  } catch {
    const said = say("The server isn't responding.");
    problem(said);
    throw new Error(said);
  }
  if (answer.status === 401 && byId("key-dialog")) {
    await askForKey();
    return call(method, path, body);
  }
  const content = await answer.json();
  if (!answer.ok) {
    problem(content.error.message);
    throw new Error(content.error.message);
  }
  return content;
}

// A picture: fetched like everything else, so that it comes with the key.
export async function blob(path, query) {
  const key = sessionStorage.getItem(KEY);
  const answer = await fetch(`/v1/${path}?${new URLSearchParams(query)}`, { headers: key ? { "X-API-Key": key } : {} });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.blob();
}

export const get = (path, query) => call("GET", query ? `${path}?${new URLSearchParams(query)}` : path);
export const post = (path, body) => call("POST", path, body);
