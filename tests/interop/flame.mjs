// SPDX-License-Identifier: BSD-2-Clause
// Drives a flame graph in a browser as a reader would: flame.mjs CHROMIUM SVG NAME [PICTURES]
//
// NAME is a function that is in the picture and is neither its root nor all of it. Prints what it
// saw as one JSON object. PICTURES is a folder for screenshots (light, zoomed, searched, dark).
import { createRequire } from "node:module";

const [chromium, svg, name, pictures] = process.argv.slice(2);
const { chromium: browserType } = createRequire(process.env.NODE_HOME + "/")("playwright-core");
const browser = await browserType.launch({
	executablePath: chromium,
	args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
const requests = [], errors = [], saw = { requests, errors };

async function open(colorScheme) {
	const page = await browser.newPage({ viewport: { width: 1200, height: 700 }, colorScheme });
	page.on("request", (r) => requests.push(r.url()));
	page.on("pageerror", (e) => errors.push(String(e)));
	await page.goto("file://" + svg);
	return page;
}

async function picture(page, what) {
	if (pictures)
		await page.screenshot({ path: pictures + "/" + what + ".png" });
}

// What the boxes look like now: those that are shown, and one of the function we follow.
const state = (page) => page.evaluate((wanted) => {
	const boxes = [...document.getElementsByClassName("f")];
	const shown = boxes.filter((b) => !b.classList.contains("gone"));
	const box = boxes.find((b) => b.firstElementChild.textContent.split("\n")[0] === wanted);
	return {
		all: boxes.length, shown: shown.length,
		width: box && parseFloat(box.getAttribute("width")),
		page: document.documentElement.clientWidth,
		drawn: box && box.getBoundingClientRect().width,
		hits: boxes.filter((b) => b.classList.contains("hit")).length,
		matched: document.getElementById("matched").textContent,
		details: document.getElementById("details").textContent,
		resettable: !document.getElementById("reset").classList.contains("gone"),
		focused: document.activeElement?.classList.contains("f") &&
			document.activeElement.firstElementChild.textContent.split("\n")[0],
	};
}, name);

const boxOf = (page) => page.evaluateHandle((wanted) =>
	[...document.getElementsByClassName("f")].find(
		(b) => b.firstElementChild.textContent.split("\n")[0] === wanted).children[1], name);

// On a busy machine the page answers late. What never comes is seen in the state.
const settled = (page, id, text, timeout) => page.waitForFunction(
	([where, what]) => document.getElementById(where).textContent.includes(what),
	[id, text], { timeout }).then(() => true, () => false);

const page = await open("light");
saw.start = await state(page);
await picture(page, "light");

const box = (await boxOf(page)).asElement();
// A box that moved under a pointer at rest is not hovered: come again.
for (let tries = 0; tries < 20; tries++) {
	await page.mouse.move(1, 1);
	await box.hover();
	if (await settled(page, "details", name, 500))
		break;
}
saw.hovered = await state(page);
await box.click();
saw.zoomed = await state(page);
await picture(page, "zoomed");
await page.click("#reset");
saw.reset = await state(page);

await page.keyboard.press("/");
await page.keyboard.type("^" + name.replace(/[^\w]/g, "\\$&") + "$");
await settled(page, "matched", "%", 10000);
saw.searched = await state(page);
await picture(page, "searched");
await page.fill("#q", "(");
saw.wrong = await page.evaluate(() => document.getElementById("q").classList.contains("wrong"));
await page.keyboard.press("Escape");
saw.escaped = await state(page);

await page.keyboard.press("Control+f");
saw.ctrl_f = await page.evaluate(() => document.activeElement.id);
await page.keyboard.press("Escape");
await page.focus(".f");
await page.keyboard.press("ArrowDown");
await page.keyboard.press("Enter");
saw.keyboard = await state(page);

await page.setViewportSize({ width: 600, height: 700 });
saw.narrow = await state(page);
await picture(await open("dark"), "dark");
console.log(JSON.stringify(saw, null, 1));
await browser.close();
