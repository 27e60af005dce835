// Looks at the pages that are built in, as internal/engine's test asks for it:
//
//   node pages.mjs CHROMIUM LIST [FOLDER FOR SCREENSHOTS]
//
// LIST is JSON: [{name, url, status, says}, …]. It prints what is wrong and ends with 1, or
// "ok".
import { end, fault, inspect, listen, start, ways } from "./look.mjs";

const [path, list, folder] = process.argv.slice(2);
const browser = await start(path);
for (const { name, options } of ways) {
  const context = await browser.newContext(options);
  for (const { name: what, url, status, says } of JSON.parse(list)) {
    const page = await context.newPage();
    listen(page, `${what} ${name}`, /Failed to load resource/); // the status, of the page and of its icon
    if (status === 401) {
      await page.route(url, async (route) => { // a browser asks for a password before it shows the page
        const response = await route.fetch(), headers = { ...response.headers() };
        delete headers["www-authenticate"];
        await route.fulfill({ response, headers });
      });
    }
    const answer = await page.goto(url, { waitUntil: "load" });
    const text = await page.locator("body").innerText();
    if (answer.status() !== status || !text.includes(says)) fault(`${what} ${name}: ${answer.status()}, ${text}`);
    await inspect(page, `${what}-${name}`, folder);
    await page.close();
  }
  await context.close();
}
await end(browser);
