// Follow the crew; keep what is typed.
const page = document, $ = (id) => page.getElementById(id), on = (name, act) => page.addEventListener(name, act), here = location.pathname + location.search;
if ($("login")) {
  const code = location.hash.match(/^#t=(.+)/);
  history.replaceState(null, "", here);
  addEventListener("hashchange", () => location.reload());
  if (code) { $("code").value = code[1]; $("login").submit(); }
} else {
  const held = new Map(), data = page.body.dataset;
  let stream, heard = Date.now(), pressed;
  const isBusy = (section) => section.contains(pressed) || [...section.querySelectorAll("input:not([type=hidden]),textarea,select")]
    .some((field) => field === page.activeElement || field.value !== (field.defaultValue ?? field.value));
  const put = (id, html) => {
    const section = $(id), all = (names) => [...section.querySelectorAll(names)], active = page.activeElement;
    const open = all("[open]>summary").map((row) => row.textContent), isInside = section.contains(active);
    section.innerHTML = html;
    for (const row of all("summary")) row.parentNode.open = open.includes(row.textContent);
    if (isInside) all("a,button,summary").find((row) => row.textContent === active.textContent)?.focus();
  };
  const release = () => { for (const [id, html] of held) if (!isBusy($(id))) { held.delete(id); put(id, html); } };
  const take = (news) => {
    for (const id in news.parts) { if (!$(id)) return location.reload(); held.set(id, news.parts[id]); }
    page.title = news.title;
    data.version = news.version;
    release(); tick();
  };
  const set = (part, words) => part.textContent === words || (part.textContent = words);
  const say = ({ fresh, isOld = true }) => { set($("fresh"), fresh); page.body.classList.toggle("old", isOld); };
  const span = (minutes) => minutes < 1 ? "<1 min" : minutes < 120 ? `${minutes | 0} min` : minutes < 2880 ? `${minutes / 60 | 0} h` : `${minutes / 1440 | 0} days`;
  const tick = () => {
    for (const time of page.querySelectorAll("time")) set(time, span((Date.now() - new Date(time.dateTime)) / 6e4));
    const seconds = (Date.now() - heard) / 1e3 | 0;
    if (seconds < 13) return;
    say({ fresh: `no news for ${seconds < 120 ? `${seconds} s` : span(seconds / 60)}: connecting again` });
    if (seconds % 20 < 2) { close(); open(); }
  };
  const close = () => { stream?.close(); stream = null; };
  const open = () => {
    if (stream || page.hidden) return;
    stream = new EventSource("/events?" + new URLSearchParams({ page: here, version: data.version }));
    const read = (event) => (heard = Date.now(), JSON.parse(event.data));
    stream.onmessage = (event) => take(read(event));
    stream.addEventListener("alive", (event) => say(read(event)));
    stream.onerror = () => { if (stream?.readyState > 1) { close(); fetch("/alive").then((answer) => answer.status === 401 && location.reload(), () => 0); setTimeout(open, 3e3); } };
  };
  on("visibilitychange", () => page.hidden ? close() : open());
  addEventListener("pageshow", open); addEventListener("pagehide", close);
  on("pointerdown", (event) => pressed = event.target);
  for (const name of ["pointerup", "pointercancel"]) on(name, () => { pressed = null; setTimeout(release, 300); });
  on("focusout", () => setTimeout(release));
  on("submit", async (event) => {
    const form = event.target;
    if (!form.matches(".act")) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form, event.submitter));
    event.submitter.disabled = true;
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { "x-liza": data.version } });
      if (!answer.ok) return form.submit();
      const news = await answer.json();
      if (news.isDone) form.reset(); else for (const field of form) field.defaultValue = field.value;
      page.activeElement?.blur();
      take(news);
    } catch { say({ fresh: "the action may not have arrived" }); }
    event.submitter.disabled = false;
  });
  setInterval(tick, 2e3);
  open();
}
