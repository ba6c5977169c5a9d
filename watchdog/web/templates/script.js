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
// Takes the same page anew and swaps its main part; what a reader has opened stays open.
setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, {headers: {accept: "text/html"}, signal: AbortSignal.timeout(4000)});
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    const main = document.getElementById("main");
    for (const seen of main.querySelectorAll("details[data-id]")) {
      const same = fresh.querySelector(`details[data-id="${CSS.escape(seen.dataset.id)}"]`);
      if (same) same.open = seen.open;
    }
    addLocalTime(fresh);
    addCopying(fresh);
    if (String(getSelection()) === "") main.replaceWith(document.adoptNode(fresh));
    document.body.classList.remove("is-stale");
  } catch { document.body.classList.add("is-stale"); }
}, {{ refresh_seconds }} * 1000);
