-- oldest client: 1
-- The board of each crew, its journal, and the hosts that work on it. `change` counts all changes of a crew, `revision`
-- those that the journal has.

CREATE TABLE crew (
  id text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL DEFAULT 0,
  change bigint NOT NULL DEFAULT 0,
  journaled bigint NOT NULL DEFAULT -1,          -- change of the last revision; -1: the next line needs the whole text
  swept bigint NOT NULL DEFAULT 0,               -- who has seen less reads all again: deleted rows up to it are gone
  repository text NOT NULL DEFAULT '',           -- root commits of the repository, sorted
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  started timestamptz,
  notified timestamptz NOT NULL DEFAULT '-infinity'  -- when a change was notified last: not each of many is
) WITH (fillfactor = 50);

-- One row for each part of the text of the board. `body` is the YAML, with the comments of people; `value` is derived
-- from it. A deleted part keeps its row without body until every host has seen the change.
CREATE TABLE entry (
  crew text COLLATE "C" NOT NULL,
  section text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  ord float8 NOT NULL,
  body text,
  value jsonb,
  change bigint NOT NULL,
  -- A task has one owner, one worktree and one review, and an agent owns one task: liza/model/invariants.py.
  owner text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN section = 'tasks' AND body IS NOT NULL AND value->>'status' = 'CLAIMED' THEN value->>'assigned_to' END
  ) STORED,
  slot text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN section = 'tasks' AND body IS NOT NULL
      AND value->>'status' IN ('CLAIMED', 'READY_FOR_REVIEW', 'APPROVED', 'REJECTED', 'INTEGRATION_FAILED')
    THEN value->>'worktree' END
  ) STORED,
  reserver text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN section = 'tasks' AND body IS NOT NULL THEN value->'reservation'->>'run' END
  ) STORED,
  reviewer text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN section = 'tasks' AND body IS NOT NULL THEN value->>'review_run' END
  ) STORED,
  PRIMARY KEY (crew, section, name),
  -- Compared at the commit: one change may give the slot of a task to another one.
  CONSTRAINT entry_owner UNIQUE (crew, owner) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT entry_slot UNIQUE (crew, slot) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT entry_reserver UNIQUE (crew, reserver) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT entry_reviewer UNIQUE (crew, reviewer) DEFERRABLE INITIALLY DEFERRED
) WITH (fillfactor = 80);
CREATE INDEX entry_change ON entry (crew, change);

CREATE TABLE archived (
  crew text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  body text NOT NULL,
  value jsonb,
  status text COLLATE "C" NOT NULL,
  merge_commit text COLLATE "C",
  change bigint NOT NULL,
  ord bigint NOT NULL,                           -- place among those of the same change
  time timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (crew, task)
);
CREATE INDEX archived_merge_commit ON archived (crew, merge_commit) WHERE merge_commit IS NOT NULL;
CREATE INDEX archived_change ON archived (crew, change, ord);

CREATE TABLE journal (
  crew text COLLATE "C" NOT NULL,
  revision bigint NOT NULL,
  time timestamptz NOT NULL,
  change_id uuid NOT NULL,                       -- random, of the client: whether a change in doubt was made
  head jsonb NOT NULL,
  entries jsonb,
  text text,
  PRIMARY KEY (crew, revision),
  UNIQUE (crew, change_id)
);

CREATE TABLE signal (
  crew text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  text text NOT NULL DEFAULT '',
  time timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (crew, name)
);

-- Documents of goals and tasks that are not committed: files below .liza/specs, which each host needs.
CREATE TABLE page (
  crew text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  text text NOT NULL,
  time timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (crew, name)
);

-- A host that works on a crew. A new incarnation begins when the sessions of the last one have ended. Each renewal has
-- another `token`: a copy of the host's disk knows only those until it was made.
CREATE TABLE host (
  crew text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  incarnation uuid NOT NULL,
  token uuid NOT NULL,
  boot text NOT NULL,
  since timestamptz NOT NULL,
  seen timestamptz NOT NULL,
  expires timestamptz NOT NULL,
  seen_change bigint NOT NULL DEFAULT 0,
  address text NOT NULL DEFAULT '',
  PRIMARY KEY (crew, name)
) WITH (fillfactor = 50);

-- Where the supervisor of an agent is. It is there as long as the host has this incarnation and its lease.
CREATE TABLE lease (
  crew text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  host text COLLATE "C" NOT NULL,
  incarnation uuid NOT NULL,
  run text COLLATE "C" NOT NULL DEFAULT '',     -- whose session may live
  since timestamptz NOT NULL,
  PRIMARY KEY (crew, agent)
);

-- What one host at a time does for the crew: merger, exporter, notices. `term` grows with each new holder.
-- It has a duty as long as it has this incarnation and its lease.
CREATE TABLE duty (
  crew text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  host text COLLATE "C" NOT NULL,
  incarnation uuid NOT NULL,
  term bigint NOT NULL,
  since timestamptz NOT NULL,
  PRIMARY KEY (crew, name)
);

-- What each host tells of its agents: what their files and processes there show.
CREATE TABLE agent_fact (
  crew text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  host text COLLATE "C" NOT NULL,
  body text NOT NULL,
  time timestamptz NOT NULL,
  PRIMARY KEY (crew, agent)
) WITH (fillfactor = 50);

-- Messages for agents whose supervisor is on another host than the sender, or on none. The host that gets the agent
-- delivers them.
CREATE TABLE message (
  crew text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (crew, id)
);

-- Lines of the logs that each host has in files: usage of sessions, runs of gates. Whoever adds lines holds a lock, so
-- a reader who has seen a number misses no smaller one.
CREATE TABLE log_line (
  crew text COLLATE "C" NOT NULL,
  log text COLLATE "C" NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  line text NOT NULL,
  digest text COLLATE "C" GENERATED ALWAYS AS (md5(line)) STORED,
  PRIMARY KEY (crew, log, number),
  UNIQUE (crew, log, digest)
);
