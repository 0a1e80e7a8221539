// Liza's hooks for this run: each event is sent to `liza hook`, and its reply is returned. After an error or a timeout
// of the hook, a tool is refused. Other events never stop the program.
//
// The calls are synchronous: at the end of a turn or the session, the program continues as soon as a handler yields.
import { spawnSync } from "node:child_process";

const WORDS = {words};
const UNJUDGED = {unjudged};
const FAILED = { refuse: UNJUDGED };

function ask(event, ctx, said = {}) {
  const input = JSON.stringify({ session_id: ctx?.sessionManager?.getSessionId?.(), ...said });
  try {
    const done = spawnSync(WORDS[0], [...WORDS.slice(1), event], { input, timeout: 15000, killSignal: "SIGKILL", encoding: "utf8" });
    return done.status === 0 ? JSON.parse(done.stdout || "{}") : FAILED;
  } catch {
    return FAILED;
  }
}

export default function (pi) {
  let brief = "";
  const shown = (content) => ({ customType: "liza", content, display: true });

  pi.on("session_start", (_event, ctx) => {
    brief = ask("session_start", ctx).context ?? "";
  });
  pi.on("before_agent_start", (event, ctx) => {
    const { context } = ask("before_agent_start", ctx, { prompt: event.prompt });
    const content = [brief, context].filter(Boolean).join("\n");
    brief = "";
    return content ? { message: shown(content) } : undefined;
  });
  pi.on("tool_call", (event, ctx) => {
    const { refuse } = ask("tool_call", ctx, { tool_name: event.toolName, tool_input: event.input });
    return refuse ? { block: true, reason: refuse } : undefined;
  });
  pi.on("tool_result", (event, ctx) => {
    const { context } = ask("tool_result", ctx);
    return context ? { content: [...event.content, { type: "text", text: context }] } : undefined;
  });
  pi.on("session_compact", (_event, ctx) => {
    const { context } = ask("session_compact", ctx);
    if (context) pi.sendMessage(shown(context), { deliverAs: "steer" });
  });
  // A model turn without a tool call is the last one of a request, unless a follow-up is sent now.
  pi.on("turn_end", (event, ctx) => {
    if (event.toolResults?.length || event.message?.stopReason !== "stop") return;
    const { push } = ask("turn_end", ctx);
    if (push) pi.sendUserMessage(push, { deliverAs: "followUp" });
  });
  pi.on("session_shutdown", (_event, ctx) => {
    ask("session_shutdown", ctx);
  });
}
