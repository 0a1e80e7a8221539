const page = document, $ = (id) => page.getElementById(id), on = addEventListener;
const held = new Map();
let stream, heard = Date.now(), pressed, latest, { version } = page.body.dataset;
const fields = (part) => [...part.querySelectorAll("[name]:not([type=hidden])")];
const texts = (form) => fields(form).map((field) => field.value).join("\0");
const isTyped = (field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked;
const drawn = (field) => field?.form.elements.drawn?.value;
const isBusy = (part) => part.contains(pressed) || part.querySelector(":is(input,textarea,select,button):focus");
const put = (part, html) => {
	const next = part.cloneNode(), active = page.activeElement, all = (box, names) => [...box.querySelectorAll(names)];
	next.innerHTML = html;
	for (const field of fields(part).filter(isTyped)) {
		const twin = next.querySelector(`[id="${field.id}"]`);
		if (drawn(twin) !== drawn(field)) return;
		twin.value = field.value; twin.checked = field.checked;
	}
	const open = all(part, "[open]>summary").map((row) => row.textContent);
	for (const row of all(next, "summary")) row.parentNode.open = open.includes(row.textContent);
	part.replaceChildren(...next.childNodes);
	all(part, "a,summary").find((row) => row.outerHTML === active.outerHTML)?.focus();
	return true;
};
const release = () => { for (const [id, html] of held) if (!isBusy($(id)) && put($(id), html)) held.delete(id); };
const leave = () => fields(page).some(isTyped) ? say({ fresh: "log in in another tab" }) : location.reload();
const take = (news) => {
	if (news.number < latest) return;
	for (const id in news.parts) { if (!$(id)) return leave(); held.set(id, news.parts[id]); }
	latest = news.number; page.title = news.title; version = news.version;
	release(); tick();
};
const set = (part, words) => part.textContent === words || (part.textContent = words);
const say = ({ fresh, isOld = true }) => { set($("fresh"), fresh); page.body.classList.toggle("old", isOld); };
const span = (min) => min < 1 ? "<1 min" : min < 120 ? `${min | 0} min` : min < 2880 ? `${min / 60 | 0} h` : `${min / 1440 | 0} days`;
const tick = () => {
	for (const time of page.querySelectorAll("time")) set(time, span((Date.now() - new Date(time.dateTime)) / 6e4));
	const age = Math.abs(Date.now() - heard) / 1e3 | 0;
	if (age < 13) return;
	say({ fresh: `no news for ${age} s` });
	if (age % 20 < 2) { close(); open(); }
};
const close = () => { stream?.close(); stream = null; };
const open = () => {
	if (stream || page.hidden) return;
	stream = new EventSource("/events?" + new URLSearchParams({ page: location.pathname + location.search, version }));
	stream.onopen = () => latest = 0;
	stream.onmessage = (event) => {
		const news = JSON.parse(event.data);
		heard = Date.now();
		say(news);
		if (news.parts) take(news);
	};
	stream.onerror = () => { if (stream?.readyState > 1) { close(); fetch("/alive").then((reply) => reply.status === 401 && leave(), () => 0); setTimeout(open, 3e3); } };
};
page.addEventListener("visibilitychange", () => page.hidden ? close() : open());
on("pageshow", open); on("pagehide", close);
on("pointerdown", (event) => pressed = event.target);
for (const name of ["pointerup", "pointercancel"]) on(name, () => { pressed = null; setTimeout(release, 300); });
on("focusout", () => setTimeout(release));
on("submit", async (event) => {
	const form = event.target, button = event.submitter, sent = texts(form);
	if (!form.matches(".act")) return;
	event.preventDefault();
	button.disabled = true;
	try {
		const reply = await fetch("/do", { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "x-liza": version } });
		if (reply.status === 401) leave();
		else if (!reply.ok) return form.submit();
		else {
			const news = await reply.json();
			if (texts(form) === sent) {
				if (news.isDone) form.reset(); else for (const field of form) field.defaultValue = field.value;
			}
			page.activeElement?.blur();
			take(news);
		}
	} catch { button.textContent = "Send it again"; }
	button.disabled = false;
});
setInterval(tick, 2e3);
