// The OpenAPI document as a page; nothing is loaded from elsewhere.

import { byId, h, show } from "/static/dom.js";

const lastName = (ref) => ref.split("/").pop();

function type(schema) {
  if (!schema) return "";
  if (schema.$ref) return lastName(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map(type).join(" or ");
  if (schema.type === "array") return `list of ${type(schema.items)}`;
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  return schema.type ?? "anything";
}

function limits(schema) {
  const parts = [];
  if (schema.default !== undefined && schema.default !== null) parts.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.minimum !== undefined) parts.push(`from ${schema.minimum}`);
  if (schema.maximum !== undefined) parts.push(`to ${schema.maximum}`);
  if (schema.maxItems !== undefined) parts.push(`at most ${schema.maxItems}`);
  return parts.join(", ");
}

// What is between backticks is code.
const marked = (said) => said.split("`").map((part, k) => (k % 2 ? h("code", {}, part) : part));
const text = (parts) => marked(parts.filter(Boolean).map((part) => part.replace(/\.$/, "")).join("; "));

function table(rows) {
  if (!rows.length) return null;
  return h("div", { class: "wide" }, h("table", {},
    h("thead", {}, h("tr", {}, ["name", "type", "what"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(({ name, schema, required, description }) => h("tr", {},
      h("td", {}, h("code", {}, name), required ? " *" : ""),
      h("td", {}, type(schema)),
      h("td", {}, text([description ?? schema.description ?? schema.items?.description, limits(schema)])))))));
}

function fields(schema) {
  return Object.entries(schema.properties ?? {}).map(([name, value]) => (
    { name, schema: value, required: (schema.required ?? []).includes(name) }));
}

// A user and an item that this server knows, so that every example runs as it is.
const firstOf = async (kind) => (await (await fetch(`/v1/${kind}?limit=1`)).json()).results?.[0]?.name ?? "NAME";
const [user, item] = await Promise.all(["users", "items"].map(firstOf));
const values = { user, item, type: "item", id: 0, name: "stock" };
// What a body may have, by the names of its fields.
const samples = { user, item, users: [user], items: [item], k: 3, events: [{ kind: "interaction", user, item }] };
const sample = (schema, schemas) => (schema.type === "array" ? [item] : Object.fromEntries(
  Object.keys(schemas[type(schema)].properties).filter((name) => name in samples).map((name) => [name, samples[name]])));
const quoted = (said) => `'${said.replaceAll("'", "'\\''")}'`;

function example(method, path, parameters, body, schemas) {
  const needed = parameters.filter((one) => one.required && one.in === "query")
    .map((one) => `${one.name}=${encodeURIComponent(values[one.name])}`);
  const place = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name]));
  const url = quoted(`${location.origin}${place}${needed.length ? "?" : ""}${needed.join("&")}`);
  const data = body ? ` \\\n  -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(sample(body, schemas)))}` : "";
  return h("pre", { tabindex: "0" }, `curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${url}${data}`);
}

const anchor = (method, path) => `${method}${path.replace(/\W+/g, "-")}`;

function operation(path, method, about, schemas) {
  const body = about.requestBody?.content["application/json"].schema;
  const answer = about.responses["200"]?.content?.["application/json"]?.schema;
  return h("section", { class: "card" },
    h("h2", { id: anchor(method, path) }, h("span", { class: "method" }, method.toUpperCase()), path),
    h("p", {}, marked(about.description ?? about.summary)),
    table(about.parameters ?? []),
    body ? [h("h3", {}, `Body: ${type(body)}`), table(fields(schemas[type(body)] ?? body))] : null,
    answer ? h("p", { class: "quiet" }, `Returns ${type(answer)}.`) : null,
    example(method, path, about.parameters ?? [], body, schemas));
}

const openapi = await (await fetch("/v1/openapi.json")).json();
const schemas = openapi.components.schemas;
const every = Object.entries(openapi.paths).flatMap(([path, methods]) => (
  Object.entries(methods).map(([method, one]) => [path, method, one])));
show(byId("main"),
  h("section", { class: "card" }, h("h2", {}, `HTTP API ${openapi.info.version}`), h("p", {}, marked(openapi.info.description)),
    h("h3", {}, "Contents"),
    h("ul", { class: "contents" }, every.map(([path, method]) => h("li", {}, h("a", { href: `#${anchor(method, path)}` },
      h("span", { class: "method" }, method.toUpperCase()), path))),
    h("li", {}, h("a", { href: "#schemas" }, "Schemas")))),
  every.map(([path, method, one]) => operation(path, method, one, schemas)),
  h("section", { class: "card" }, h("h2", { id: "schemas" }, "Schemas"),
    Object.entries(schemas).map(([name, schema]) => [
      h("h3", { id: name }, name), h("p", { class: "quiet" }, schema.description ?? ""), table(fields(schema))])));
document.body.dataset.ready = "yes";
