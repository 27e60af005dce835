// Looks at the dashboard in a browser, as internal/engine's test asks for it:
//
//   node check.mjs CHROMIUM ADMIN SITE [FOLDER FOR SCREENSHOTS]
//
// ADMIN and SITE are URLs without a slash at their end. It prints what is wrong and
// ends with 1, or "ok".
import { end, fault, inspect, listen, start, ways } from "./look.mjs";

const [path, admin, site, folder] = process.argv.slice(2);
const browser = await start(path);

// open makes a page whose every request is looked at.
async function open(options, path = "/dashboard/") {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("request", (r) => {
    if (!r.url().startsWith(admin + "/")) fault(`a request left the origin: ${r.url()}`);
  });
  listen(page, path, /503|ERR_INCOMPLETE_CHUNKED|ERR_ABORTED/);
  await page.goto(admin + path, { waitUntil: "load" });
  return page;
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

// Both colours and both widths.
for (const { name, options } of ways) {
  const one = await open(options);
  await one.locator("#state", { hasText: "live" }).waitFor();
  if (folder) await one.waitForTimeout(1500);
  // Of the key figures no row is shorter than the others.
  const rows = await one.locator(".card").evaluateAll((cards) => {
    const rows = {};
    for (const c of cards) rows[c.offsetTop] = (rows[c.offsetTop] ?? 0) + 1;
    return Object.values(rows);
  });
  if (new Set(rows).size !== 1) fault(`${name}: the rows of key figures have ${rows} cards`);
  if ((await one.locator("main").innerText()).includes("`")) fault(`${name}: there is a backtick on the page`);
  await inspect(one, name, folder);
  for (const own of ["channels", "pictures", "traffic"]) {
    await one.goto(`${admin}/dashboard/${own}`, { waitUntil: "load" });
    await inspect(one, `${own}-${name}`, folder);
  }
  const link = await one.goto(`${admin}/dashboard/channels`).then(() => one.locator("#channels td a").first());
  if ((await link.innerText()) !== "news") fault(`${name}: there is no channel`);
  await link.click();
  await one.locator("#history td", { hasText: "hello" }).waitFor();
  await inspect(one, `channel-${name}`, folder);
  await one.context().close();
}
await end(browser);
