// Liza's hooks for this run: each event is sent to `liza hook`, and its reply is returned. After an error or a timeout
// of the hook, a tool is refused. Other events never stop the program.
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";

const WORDS = {words};
const UNJUDGED = {unjudged};
const FAILED = { refuse: UNJUDGED };

function ask(event, said) {
  return new Promise((answer) => {
    const child = execFile(WORDS[0], [...WORDS.slice(1), event], { timeout: 15000, killSignal: "SIGKILL" }, (error, out) => {
      try {
        answer(error ? FAILED : JSON.parse(out || "{}"));
      } catch {
        answer(FAILED);
      }
    });
    child.on("error", () => answer(FAILED));
    child.stdin.on("error", () => {});
    child.stdin.end(JSON.stringify(said));
  });
}

export const Liza = async ({ client }) => {
  // The run's newest conversation. Conversations of its sub-agents have a parent and are ignored.
  let own = "";
  const helpers = new Set();
  let brief = "";
  // The user messages of `own` that exist, and what to call when the next one does.
  const prompts = new Set();
  let promptStored = () => {};

  return {
    "chat.message": async (input, output) => {
      if (helpers.has(input.sessionID)) return;
      if (input.sessionID !== own) {
        own = input.sessionID;
        brief = (await ask("started", { session_id: own })).context ?? "";
      }
      const prompt = output.parts.map((part) => part.text ?? "").join("\n");
      const { context } = await ask("chat.message", { session_id: own, prompt });
      const first = output.parts[0];
      if (context && first)
        output.parts.push({
          id: `prt_${Date.now().toString(16)}${randomBytes(8).toString("hex")}`,
          sessionID: first.sessionID,
          messageID: first.messageID,
          type: "text",
          text: context,
          synthetic: true,
        });
    },
    // Added to every request, because a compaction could remove it.
    "experimental.chat.system.transform": async (input, output) => {
      if (brief && input.sessionID === own) output.system.push(brief);
    },
    "tool.execute.before": async (input, output) => {
      const said = { session_id: input.sessionID, tool_name: input.tool, tool_input: output.args };
      const { refuse } = await ask("tool.execute.before", said);
      if (refuse) throw new Error(refuse);
    },
    "tool.execute.after": async (input, output) => {
      if (input.sessionID !== own) return;
      const { context } = await ask("tool.execute.after", { session_id: own });
      if (context) output.output = `${output.output ?? ""}\n${context}`;
    },
    // A headless run ends once its session is idle, so pending messages are delivered during the turn. The turn is held
    // until the new prompt is stored: the program decides afterwards whether the session goes on.
    "experimental.text.complete": async (input) => {
      if (input.sessionID !== own) return;
      const { push } = await ask("text.complete", { session_id: own });
      if (!push) return;
      const stored = new Promise((done) => {
        promptStored = done;
        setTimeout(done, 10000);
      });
      await client.session.promptAsync({ path: { id: own }, body: { parts: [{ type: "text", text: push }] } });
      await stored;
    },
    event: async ({ event }) => {
      const info = event.type === "message.updated" ? event.properties?.info : undefined;
      if (info?.role === "user" && info.sessionID === own && !prompts.has(info.id)) {
        prompts.add(info.id);
        promptStored();
      }
      if (event.type === "session.created" && event.properties?.info?.parentID) helpers.add(event.properties.info.id);
      const id = event.properties?.sessionID ?? event.properties?.info?.id;
      if (id !== own || !["session.idle", "session.deleted"].includes(event.type)) return;
      await ask(event.type, { session_id: own });
    },
  };
};
