// The reader's own time, UTC beside it.
function addLocalTime(part) {
  for (const one of part.querySelectorAll("time[datetime]")) {
    const moment = new Date(one.dateTime);
    if (isNaN(moment) || moment.getTimezoneOffset() === 0) continue;
    const local = moment.toLocaleTimeString([], {hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit"});
    one.textContent = `${local} (${one.textContent})`;
  }
}
// A click takes the whole command.
function addCopying(part) {
  if (!navigator.clipboard) return;
  for (const flag of part.querySelectorAll(".flag")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.setAttribute("aria-label", `copy ${flag.textContent}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(flag.textContent);
      button.textContent = "copied";
    });
    flag.after(" ", button);
  }
}
addLocalTime(document);
addCopying(document);
const main = () => document.getElementById("main");
const fresh = () => document.getElementById("fresh");
let answered = fresh().querySelector("time").textContent;
// Says why what is seen does not go on, and from when it is.
function hold(why) {
  const text = `${why}; data is from ${answered}`;
  if (fresh().textContent === text) return;
  fresh().textContent = text;
  fresh().classList.add("stale");
  document.getElementById("news").textContent = text;
}
// The same link, fold or button on the new page: by what it does, and the how manieth of these it is.
function place(of) {
  const all = [...main().querySelectorAll("a, summary, button")];
  const name = (one) => `${one.tagName} ${one.getAttribute("href") || one.parentElement.dataset.id || one.textContent}`;
  const same = all.filter((one) => name(one) === name(of));
  const number = same.indexOf(of);
  return () => [...main().querySelectorAll("a, summary, button")].filter((one) => name(one) === name(of))[number];
}
// Puts a new main part in the place of the old: folds stay open, the focus where it was, the page where it was scrolled to.
function swap(next) {
  for (const seen of main().querySelectorAll("details[data-id]")) {
    const same = next.querySelector(`details[data-id="${CSS.escape(seen.dataset.id)}"]`);
    if (same) same.open = seen.open;
  }
  addLocalTime(next);
  addCopying(next);
  const focused = main().contains(document.activeElement) && document.activeElement !== main() ? document.activeElement : null;
  const again = focused && place(focused);
  const [left, top] = [scrollX, scrollY];
  main().replaceWith(document.adoptNode(next));
  if (again) again()?.focus({preventScroll: true});
  scrollTo(left, top);
}
function take(page) {
  const next = page.getElementById("fresh");
  addLocalTime(next);
  fresh().replaceWith(document.adoptNode(next));
  answered = next.querySelector("time").textContent;
  document.getElementById("icon").href = page.getElementById("icon").href;
  document.getElementById("news").textContent = document.title === page.title ? "" : page.title;
  document.title = page.title;
  swap(page.getElementById("main"));
}
setInterval(async () => {
  if (document.hidden) return;
  if (String(getSelection()) !== "") return hold("held while text is selected");
  try {
    const answer = await fetch(location.href, {headers: {accept: "text/html"}, signal: AbortSignal.timeout(4000)});
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (String(getSelection()) === "") take(page);
  } catch { hold("Lost contact with the watchdog"); }
}, {{ refresh_seconds }} * 1000);
