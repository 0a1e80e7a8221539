// Liza's hooks for this run: each event is told to `liza hook`, and its answer given back. An error of ours, or no
// answer within its time, never keeps the program from going on.
import { execFile } from "node:child_process";

const WORDS = {words};

function ask(event, said) {
  return new Promise((answer) => {
    const child = execFile(WORDS[0], [...WORDS.slice(1), event], { timeout: 20000 }, (_error, out) => {
      try {
        answer(JSON.parse(out || "{}"));
      } catch {
        answer({});
      }
    });
    child.on("error", () => answer({}));
    child.stdin.on("error", () => {});
    child.stdin.end(JSON.stringify(said));
  });
}

export default function (pi) {
  let brief = "";
  const id = (ctx) => ctx?.sessionManager?.getSessionId?.();
  const shown = (content) => ({ customType: "liza", content, display: true });

  pi.on("session_start", async (_event, ctx) => {
    brief = (await ask("session_start", { session_id: id(ctx) })).context ?? "";
  });
  pi.on("before_agent_start", async (_event, ctx) => {
    const { context } = await ask("before_agent_start", { session_id: id(ctx) });
    const content = [brief, context].filter(Boolean).join("\n");
    brief = "";
    return content ? { message: shown(content) } : undefined;
  });
  pi.on("tool_call", async (event, ctx) => {
    const { refuse } = await ask("tool_call", { session_id: id(ctx), tool_name: event.toolName });
    return refuse ? { block: true, reason: refuse } : undefined;
  });
  pi.on("tool_result", async (event, ctx) => {
    const { context } = await ask("tool_result", { session_id: id(ctx) });
    return context ? { content: [...event.content, { type: "text", text: context }] } : undefined;
  });
  pi.on("session_compact", async (_event, ctx) => {
    const { context } = await ask("session_compact", { session_id: id(ctx) });
    if (context) pi.sendMessage(shown(context), { deliverAs: "steer" });
  });
  // A turn of the model without a tool is the last one of what was asked, unless something follows at once.
  pi.on("turn_end", async (event, ctx) => {
    if (event.toolResults?.length || event.message?.stopReason !== "stop") return;
    const { push } = await ask("turn_end", { session_id: id(ctx) });
    if (push) pi.sendUserMessage(push, { deliverAs: "followUp" });
  });
  pi.on("session_shutdown", async (_event, ctx) => {
    await ask("session_shutdown", { session_id: id(ctx) });
  });
}
