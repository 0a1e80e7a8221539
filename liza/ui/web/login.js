// Log in with the code of the address, and take it out of there.
const code = location.hash.match(/^#t=(.+)/), field = document.getElementById("code");
history.replaceState(null, "", location.pathname + location.search);
addEventListener("hashchange", () => location.reload());
if (code) {
  field.value = code[1];
  field.form.submit();
}
