"use strict";
// Liza's page: log in with the code of the address, follow the crew, keep what is typed.
const $ = (id) => document.getElementById(id);
const login = $("login");
if (login) {
  const code = location.hash.match(/^#t=(.+)/);
  history.replaceState(null, "", location.pathname + location.search);
  if (code) { $("code").value = code[1]; login.submit(); }
} else {
  const held = new Map();
  let stream = null, heard = Date.now(), pressed = null;
  const text = (part) => part.replace(/(<time [^>]*>)[^<]*/g, "$1").replace(/name="form" value="[^"]*"/g, "");
  const isBusy = (section) => (pressed && section.contains(pressed)) ||
    [...section.querySelectorAll("input, textarea, select")].some((field) =>
      field === document.activeElement || (field.type !== "hidden" && field.value !== field.defaultValue && field.tagName !== "SELECT"));
  const put = (id, html) => {
    const section = $(id);
    if (!section) return location.reload();
    const open = [...section.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
    const focus = section.contains(document.activeElement) && document.activeElement.getAttribute("href");
    section.innerHTML = html;
    for (const summary of section.querySelectorAll("details > summary")) if (open.includes(summary.textContent)) summary.parentNode.open = true;
    if (focus) section.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus();
  };
  const release = (isForced) => {
    for (const [id, html] of [...held]) if (isForced || !isBusy($(id))) { held.delete(id); put(id, html); }
  };
  const take = (news, isForced) => {
    document.title = news.title;
    document.body.dataset.version = news.version;
    for (const [id, html] of Object.entries(news.parts)) held.set(id, html);
    release(isForced);
    age();
  };
  const say = (words, isOld) => { $("fresh").textContent = words; document.body.classList.toggle("old", isOld); };
  const age = () => {
    for (const time of document.querySelectorAll("time")) {
      const minutes = Math.max(0, Math.floor((Date.now() - new Date(time.dateTime)) / 60000));
      const words = minutes < 1 ? "<1 min" : minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60 ? (minutes % 60) + " min" : ""}`.trim() : `${Math.floor(minutes / 1440)} d`;
      if (time.textContent !== words) time.textContent = words;
    }
    const seconds = Math.round((Date.now() - heard) / 1000);
    if (seconds > 12) say(`connection lost, trying again; this is ${seconds < 120 ? seconds + " s" : Math.floor(seconds / 60) + " min"} old`, true);
  };
  const close = () => { stream?.close(); stream = null; };
  const open = () => {
    if (stream || document.hidden) return;
    const query = new URLSearchParams({ page: location.pathname + location.search, version: document.body.dataset.version });
    stream = new EventSource(`/events?${query}`);
    stream.onmessage = (event) => { heard = Date.now(); take(JSON.parse(event.data)); };
    stream.addEventListener("alive", (event) => { heard = Date.now(); const news = JSON.parse(event.data); say(news.fresh, news.isOld); });
    stream.onerror = () => { if (stream?.readyState === 2) { close(); fetch("/alive").then((answer) => { if (answer.status === 401) location.reload(); }, () => {}); setTimeout(open, 3000); } };
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pageshow", open);
  addEventListener("pagehide", close);
  document.addEventListener("pointerdown", (event) => { pressed = event.target; });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { pressed = null; setTimeout(release, 300); });
  document.addEventListener("focusout", () => setTimeout(release, 0));
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.classList.contains("act")) return;
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    const section = form.closest("section");
    for (const button of buttons) button.disabled = true;
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)), headers: { "x-liza": "1" } });
      if (answer.status === 401) return location.reload();
      const news = await answer.json();
      if (news.isDone) form.reset();
      document.activeElement?.blur();
      take(news);
      const failure = form.isConnected && !news.isDone && (form.querySelector("[role=alert]") || form.insertBefore(Object.assign(document.createElement("p"), { className: "red" }), form.lastElementChild));
      if (failure) { failure.setAttribute("role", "alert"); failure.textContent = `refused: ${news.text}`; }
      section.scrollIntoView({ block: "nearest" });
    } catch { say("the action may not have arrived: the connection is lost", true); }
    for (const button of buttons) button.disabled = false;
  });
  setInterval(age, 2000);
  open();
}
