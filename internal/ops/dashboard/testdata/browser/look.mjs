// What the checks in a browser have in common: each page is looked at in both colours and
// both widths, and each fault is kept until the end.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const faults = [];
export const fault = (what) => faults.push(what);

export const start = (executablePath) => chromium.launch({ executablePath, args: ["--no-sandbox"] });

// Each way a page is looked at.
export const ways = ["light", "dark"].flatMap((colorScheme) => [360, 1440].map((width) => ({
  name: `${colorScheme}-${width}`,
  options: { viewport: { width, height: 900 }, colorScheme, reducedMotion: "reduce" },
})));

// listen has a page's own faults kept: those of scripts, of its policy, of what it loads.
export function listen(page, name, expected = /^$/) {
  page.on("console", (m) => {
    if (m.type() === "error" && !expected.test(m.text())) fault(`${name}: the console says: ${m.text()}`);
  });
  page.on("pageerror", (e) => fault(`${name}: a script failed: ${e}`));
}

// inspect looks at a page as it is shown.
export async function inspect(page, name, folder) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (overflow > 0) fault(`${name}: the page is ${overflow} pixels wider than the window`);
  // axe is brought in past the page's own policy, which refuses it rightly.
  const found = await page.evaluate(`(() => { ${axe}; return axe.run(document, { resultTypes: ["violations"] }); })()`);
  for (const v of found.violations) fault(`${name}: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).slice(0, 3).join(" ")}`);
  if (found.passes.length < 6) fault(`${name}: axe has looked at nothing`);
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}

export async function end(browser) {
  await browser.close();
  console.log(faults.length ? faults.join("\n") : "ok");
  process.exit(faults.length ? 1 : 0);
}
