// Loads the OpenAPI document and shows it with Swagger UI, beside a table of contents that can be searched.
// Every address is relative, so that the page also works below a path prefix of a proxy. In the documentation site the
// document is in the page, which then has no service to send requests to.
"use strict";

const METHODS = ["get", "put", "post", "patch", "delete"];
const DOCUMENT_URL = "api/v1/openapi.json";
const EMBEDDED = document.getElementById("document");

followMediaQuery("(prefers-color-scheme: dark)", (dark) => document.documentElement.classList.toggle("dark-mode", dark));
document.documentElement.classList.toggle("embedded", Boolean(EMBEDDED));
document.addEventListener("DOMContentLoaded", start);

async function start() {
  const contents = document.getElementById("contents");
  followMediaQuery("(min-width: 64rem)", (wide) => { contents.open = wide; });
  contents.addEventListener("click", (event) => {
    if (event.target.closest("a, button") && !matchMedia("(min-width: 64rem)").matches) contents.open = false;
  });
  let spec;
  try {
    spec = await loadDocument();
  } catch (error) {
    showMessage(`The OpenAPI document could not be loaded (${error.message}). Reload the page to try again.`);
    return;
  }
  const sections = addHeadingIds(spec);
  if (!EMBEDDED) {
    // The server that served this page, also if the document names another.
    spec.servers = [{ url: new URL(".", location.href).href.replace(/\/$/, ""), description: "This service" }];
    prepareParameters(spec);
  }
  const ui = showReference(spec);
  contents.querySelector("nav").replaceChildren(...tableOfContents(spec, sections, EMBEDDED ? null : keyButton(ui)));
}

async function loadDocument() {
  if (EMBEDDED) return JSON.parse(EMBEDDED.textContent);
  const response = await fetch(DOCUMENT_URL);
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

function showReference(spec) {
  const ui = SwaggerUIBundle({
    spec,
    dom_id: "#reference",
    presets: [SwaggerUIBundle.presets.apis],
    plugins: [deepLinks],
    layout: "BaseLayout",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    ...EMBEDDED && { supportedSubmitMethods: [] },
    // Without this Swagger UI sends the address of the document to a validator on the internet.
    validatorUrl: null,
    onComplete: () => scrollToId(location.hash.slice(1)),
  });
  // Its resolver reads no reference in a document whose address is of a file, not even within the document.
  if (EMBEDDED) ui.specActions.updateUrl(EMBEDDED.dataset.address);
  // Swagger UI reads the fragment of the address only when the page is loaded.
  addEventListener("hashchange", () => ui.layoutActions.parseDeepLinkHash(location.hash));
  return ui;
}

// A plugin of Swagger UI that replaces how `#/{tag}/{operationId}` is read. Its own function logs an error for an
// operationId with an underscore, and does not scroll to an operation that is on the page already.
const deepLinks = () => ({
  statePlugins: { layout: { wrapActions: { parseDeepLinkHash: (_, { layoutActions }) => (hash) => {
    if (!hash?.startsWith("#/")) return;
    const [tag, operationId] = hash.slice(2).split("/").map(decodeURIComponent);
    layoutActions.show(["operations-tag", tag], true);
    if (operationId) layoutActions.show(["operations", tag, operationId], true);
    scrollToId((operationId ? ["operations", tag, operationId] : ["operations", "tag", tag]).join("-"));
  } } } },
});

// Swagger UI renders a moment after its actions return, and has underscores for spaces in the ids of its elements.
function scrollToId(id) {
  setTimeout(() => document.getElementById(id.replace(/\s/g, "_"))?.scrollIntoView(), 100);
}

// Gives each second-level heading of the description an id, and returns the headings.
function addHeadingIds(spec) {
  const sections = [];
  spec.info.description = (spec.info.description ?? "").replace(/^## (.+)$/gm, (_, title) => {
    const id = `guide-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
    sections.push({ title, href: `#${id}` });
    return `<h2 id="${id}">${title}</h2>\n`;
  });
  return sections;
}

// Swagger UI fills a parameter's example in as the value to send. That is kept where it makes a request that works.
function prepareParameters(spec) {
  const inline = Object.values(spec.paths).flatMap(operationsOf).flatMap(({ operation }) => operation.parameters ?? []);
  for (const parameter of [...Object.values(spec.components?.parameters ?? {}), ...inline]) {
    if (parameter.name?.toLowerCase() === "idempotency-key") {
      parameter.example = randomKey();
    } else if (parameter.in === "path" || !parameter.required) {
      moveExampleToDescription(parameter);
    }
  }
}

function moveExampleToDescription(parameter) {
  const example = parameter.example ?? parameter.schema?.examples?.[0];
  if (example === undefined) return;
  parameter.description = `${parameter.description ?? ""} Example: \`${example}\``.trim();
  delete parameter.example;
  delete parameter.schema?.examples;
}

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Opens the dialog of Swagger UI's button "Authorize", which stands below the long description.
function keyButton(ui) {
  const button = element("button", { type: "button" }, "Enter API key");
  button.addEventListener("click", () => ui.authActions.showDefinitions(ui.authSelectors.definitionsToAuthorize()));
  return button;
}

// Hides the entries of the contents that lack a word of the query. Enter opens the first entry that is left.
function searchField() {
  const field = element("input", { type: "search", placeholder: "Search operations", ariaLabel: "Search operations" });
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const entry of document.querySelectorAll("#contents li")) {
      const text = `${entry.textContent} ${entry.firstChild.dataset.words ?? ""}`.toLowerCase();
      entry.hidden = !words.every((word) => text.includes(word));
    }
    for (const section of document.querySelectorAll("#contents section")) {
      section.hidden = !section.querySelector("li:not([hidden])");
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") document.querySelector("#contents li:not([hidden]) a")?.click();
  });
  return field;
}

function tableOfContents(spec, sections, button) {
  const operations = operationsByTag(spec);
  const home = EMBEDDED ? link("Documentation of Booking Service", "../index.html") : link("Booking Service API", "./");
  const tags = (spec.tags ?? []).filter(({ name }) => operations.has(name));
  return [
    element("p", { className: "home" }, home),
    button,
    searchField(),
    group("Guide", sections.map(({ title, href }) => link(title, href))),
    ...tags.map(({ name }) => group(name, operations.get(name))),
    group("Webhook events", Object.entries(spec.webhooks ?? {}).flatMap(([name, path]) =>
      operationsOf(path).map(({ operation }) => link(name, deepLink("webhooks", operation.operationId))))),
  ].filter(Boolean);
}

function operationsByTag(spec) {
  const byTag = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const { method, tag, operation } of operationsOf(item)) {
      const entry = link("", deepLink(tag, operation.operationId));
      entry.append(element("span", { className: `method ${method}` }, method.toUpperCase()), operation.summary ?? operation.operationId);
      entry.dataset.words = `${tag} ${path} ${operation.operationId}`;
      byTag.set(tag, [...(byTag.get(tag) ?? []), entry]);
    }
  }
  return byTag;
}

function operationsOf(path) {
  return METHODS.filter((method) => path[method]).map((method) => {
    const operation = path[method];
    return { method, operation, tag: operation.tags?.[0] ?? "default" };
  });
}

// The form that Swagger UI writes to the address bar (its option `deepLinking`).
function deepLink(tag, operationId) {
  return `#/${encodeURIComponent(tag)}/${encodeURIComponent(operationId)}`;
}

function group(title, links) {
  if (!links.length) return null;
  const list = element("ul", {}, ...links.map((entry) => element("li", {}, entry)));
  return element("section", {}, element("h2", {}, title), list);
}

function link(text, href) {
  return element("a", { href }, text);
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function showMessage(text) {
  document.getElementById("reference").replaceChildren(element("p", { className: "message", role: "alert" }, text));
}

function followMediaQuery(query, apply) {
  const list = matchMedia(query);
  list.addEventListener("change", () => apply(list.matches));
  apply(list.matches);
}
