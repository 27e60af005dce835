// Looks at the dashboard in a browser, as internal/engine's test asks for it:
//
//   node check.mjs CHROMIUM ADMIN SITE [FOLDER FOR SCREENSHOTS]
//
// ADMIN and SITE are URLs without a slash at their end. It prints what is wrong and
// ends with 1, or "ok".
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, admin, site, folder] = process.argv.slice(2);
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const faults = [];
const fault = (what) => faults.push(what);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

// open makes a page whose every request is looked at.
async function open(options, path = "/dashboard/") {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("request", (r) => {
    if (!r.url().startsWith(admin + "/")) fault(`a request left the origin: ${r.url()}`);
  });
  page.on("console", (m) => {
    if (m.type() === "error" && !/503|ERR_INCOMPLETE_CHUNKED|ERR_ABORTED/.test(m.text())) fault(`the console says: ${m.text()}`);
  });
  page.on("pageerror", (e) => fault(`a script failed: ${e}`));
  await page.goto(admin + path, { waitUntil: "load" });
  return page;
}

async function accessible(page, name) {
  const context = page.context();
  // axe is brought in past the page's own policy, which refuses it rightly.
  const found = await page.evaluate(`(() => { ${axe}; return axe.run(document, { resultTypes: ["violations"] }); })()`);
  for (const v of found.violations) fault(`${name}: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).slice(0, 3).join(" ")}`);
  if (found.passes.length < 10) fault(`${name}: axe has looked at nothing`);
  return context;
}

const cell = (page, panel, n) => page.locator(`#${panel} tbody tr`).locator(`td:nth-child(${n})`);

// Each request is seen: N are sent, the page shows N, without being loaded again.
const N = 37;
const page = await open({ viewport: { width: 1440, height: 900 } });
// The keyboard begins with a link to the figures.
await page.keyboard.press("Tab");
if ((await page.evaluate(() => document.activeElement.className)) !== "skip") fault("the first stop of the keyboard is not the skip link");
for (let i = 0; i < N; i++) {
  const answer = await fetch(`${site}/counted.txt`);
  if (!answer.ok) fault(`the site answers ${answer.status}`);
  await answer.text();
}
const shown = async (on = page) => {
  const of = await on.locator("#traffic tbody tr").evaluateAll((rows) =>
    rows.filter((r) => r.cells[2].textContent === "static").map((r) => Number(r.cells[4].textContent.replaceAll(",", ""))));
  return of.reduce((a, b) => a + b, 0);
};
const until = async (what, f) => {
  for (let i = 0; i < 150; i++) {
    if (await f()) return;
    await new Promise((r) => setTimeout(r, 100));
  }
  fault(what);
};
await until(`the page does not show ${N} requests but ${await shown()}`, async () => (await shown()) === N);
await until("the path is not among the top URLs", async () => (await cell(page, "urls", 1).allTextContents()).some((t) => t.endsWith("/counted.txt")));

// The log can be filtered, live.
for (let i = 0; i < 3; i++) await (await fetch(`${site}/missing-${i}`)).text();
await page.fill("#filter", "404 missing-1");
await until("the filter does not leave one line", async () => (await page.locator("#log tbody tr").count()) === 1);
if (!(await cell(page, "log", 4).textContent()).includes("/missing-1")) fault("the filter leaves another line");
await page.fill("#filter", "");

// A button does what it says, and the page says so. The keyboard stays where it is.
await page.locator("#controls summary", { hasText: "Purge" }).click();
await page.fill("#what", "*");
await page.locator("#controls button", { hasText: "Purge" }).click();
await until("the page does not say how the purge ended", async () => /purge of \*/.test(await page.locator("#said").textContent()));
await page.locator("#what").focus();
await new Promise((r) => setTimeout(r, 2500));
if ((await page.evaluate(() => document.activeElement.id)) !== "what") fault("an update has taken the focus away");

// Without scripts: the same figures, and forms that work.
const plain = await open({ javaScriptEnabled: false, viewport: { width: 1440, height: 900 } });
if ((await shown(plain)) !== N + 3) fault(`without scripts the page does not show ${N + 3} requests but ${await shown(plain)}`);
await plain.fill("#filter", "missing-2");
await Promise.all([plain.waitForURL(/filter=missing-2/), plain.press("#filter", "Enter")]);
if ((await plain.locator("#log tbody tr").count()) !== 1) fault("without scripts the filter does not leave one line");

// Both colours and both widths; each with each where somebody wants to look at them.
for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 1440]) {
    if (!folder && (colorScheme === "light") !== (width === 360)) continue;
    const name = `${colorScheme}-${width}`;
    const one = await open({ viewport: { width, height: 900 }, colorScheme, reducedMotion: "reduce" });
    await one.locator("#state", { hasText: "live" }).waitFor();
    if (folder) await one.waitForTimeout(1500);
    const overflow = await one.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (overflow > 0) fault(`${name}: the page is ${overflow} pixels wider than the window`);
    await accessible(one, name);
    if (folder) await one.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
    await one.context().close();
  }
}
await browser.close();
console.log(faults.length ? faults.join("\n") : "ok");
process.exit(faults.length ? 1 : 0);
