/* main.c: the table of commands. */
#include "command/command.h"
#include "command/exchange.h"

#define LIST(type, ...) \
    (type[])            \
    {                   \
        __VA_ARGS__     \
    }
#define EXAMPLES(...) LIST(const char *const, __VA_ARGS__, NULL)
#define OPTIONS(...)  LIST(const struct option, __VA_ARGS__, {NULL, NULL, NULL})

/* A command that takes one word besides its flags. */
#define ONE_WORD(word) .words = (word), .arguments_min = 1, .arguments_max = 1

static const struct command policy_commands[] = {
    {
        .name = "create",
        .summary = "Creates a policy; it can be claimed at once",
        .examples = EXAMPLES(
            "dibs policy create --id 42 --name \"Launch day\" --discount 20% --total 1000",
            "dibs policy create --name Noon --discount 5000 --total 100 --per-user-limit 2 \\\n"
            "      --opens-at 2026-11-15T12:00:00+09:00 --closes-at 2026-11-15T13:00:00+09:00"),
        .options = OPTIONS(
            {"id", "N", "Its number; left out, the server chooses one."},
            {"name", "TEXT", "What it is called."},
            {"discount", "N%|AMOUNT", "A percentage, as in 10%, or a fixed amount, as in 5000."},
            {"total", "N", "How many coupons there are."},
            {"per-user-limit", "N", "How many of them one user may have. [1]"},
            {"opens-at", "TIME", "When claiming begins; left out, at once."},
            {"closes-at", "TIME", "When it ends; left out, never by itself."},
            {"coupon-valid-days", "N", "How many days a coupon may be redeemed."},
            {"coupon-expires-at", "TIME",
             "When all coupons end; left out, never or by their days."},
            {"currency", "CODE", "Of a fixed discount, in its smallest unit: KRW, USD (cents)."},
            {"reserve", "N", "How many units are kept back from the gate. [0]"}),
        .shared_options = exchange_options,
        .run = command_policy_create,
    },
    {
        .name = "list",
        .summary = "Lists all policies and their numbers",
        .examples = EXAMPLES("dibs policy list", "dibs policy list --json --limit 10"),
        .options = OPTIONS({"limit", "N", "With --json: how many policies a page has. [1000]"},
                           {"after", "CURSOR", "With --json: the `next` of the page before."}),
        .shared_options = exchange_options,
        .run = command_policy_list,
    },
    {
        .name = "show",
        .summary = "Shows one policy",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy show 42"),
        .shared_options = exchange_options,
        .run = command_policy_show,
    },
    {
        .name = "update",
        .summary = "Changes a policy; while it is being claimed, its total, reserve and window",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy update 42 --total 1500",
                             "dibs policy update 42 --closes-at 2026-11-15T14:00:00+09:00",
                             "dibs policy update 42 --closes-at none"),
        .options = OPTIONS(
            {"total", "N", "How many coupons there are from now on."},
            {"reserve", "N", "How many units are kept back from the gate from now on."},
            {"opens-at", "TIME", "When claiming begins; none: at once."},
            {"closes-at", "TIME", "When it ends; none: never by itself."},
            {"name", "TEXT", "What it is called. This and the rest: before the opening."},
            {"discount", "N%|AMOUNT", "A percentage, as in 10%, or a fixed amount, as in 5000."},
            {"per-user-limit", "N", "How many of them one user may have."},
            {"coupon-valid-days", "N", "How many days a coupon may be redeemed."},
            {"coupon-expires-at", "TIME", "When all coupons end; none: never, or by their days."},
            {"currency", "CODE", "Of a fixed discount; none: a plain number."}),
        .shared_options = exchange_options,
        .run = command_policy_update,
    },
    {
        .name = "pending",
        .summary = "Lists the claims that are won and not yet coupons, the oldest first",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy pending 42"),
        .options = OPTIONS({"limit", "N", "With --json: how many claims a page has. [1000]"},
                           {"after", "CURSOR", "With --json: the `next` of the page before."}),
        .shared_options = exchange_options,
        .run = command_policy_pending,
    },
    {
        .name = "pause",
        .summary = "Stops a policy for a while: claims are refused, what is held stays",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy pause 42"),
        .shared_options = exchange_options,
        .run = command_policy_pause,
    },
    {
        .name = "resume",
        .summary = "Lets a paused policy be claimed again",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy resume 42"),
        .shared_options = exchange_options,
        .run = command_policy_resume,
    },
    {
        .name = "close",
        .summary = "Ends a policy for good; its coupons stay valid",
        ONE_WORD("POLICY"),
        .examples = EXAMPLES("dibs policy close 42"),
        .shared_options = exchange_options,
        .run = command_policy_close,
    },
    {.name = NULL},
};

static const struct command product_commands[] = {
    {
        .name = "top",
        .summary = "Shows which products sell best",
        .examples = EXAMPLES("dibs product top", "dibs product top --days 1 --limit 20 --fresh",
                             "dibs product top --json | jq -r '.items[].product_id'"),
        .options = OPTIONS({"days", "N", "Of so many days, today included: 1 to 30. [3]"},
                           {"limit", "N", "How many: 1 to 100. [5]"},
                           {"fresh", NULL, "With every order that was answered before."}),
        .shared_options = exchange_options,
        .run = command_product_top,
    },
    {
        .name = "rank",
        .summary = "Shows where a product stands, and who is next to it",
        ONE_WORD("PRODUCT"),
        .examples = EXAMPLES("dibs product rank sku-7", "dibs product rank sku-7 --days 1"),
        .options = OPTIONS({"days", "N", "Of so many days, today included: 1 to 30. [3]"}),
        .shared_options = exchange_options,
        .run = command_product_rank,
    },
    {
        .name = "import",
        .summary = "Tells names and prices of products from a file",
        ONE_WORD("FILE"),
        .examples = EXAMPLES("dibs product import products.jsonl",
                             "jq -c '.[] | {product_id: .sku, name, price}' shop.json \\\n"
                             "      | dibs product import -"),
        .description = "Each line is a JSON object: "
                       "{\"product_id\":\"sku-7\",\"name\":\"Mug\",\"price\":1990}. "
                       "They are sent a few hundred at a time, and each lot is taken as a whole or "
                       "not at all. "
                       "A product that is there already gets the new name and price.",
        .shared_options = exchange_options,
        .run = command_product_import,
    },
    {.name = NULL},
};

static const struct command coupon_commands[] = {
    {
        .name = "show",
        .summary = "Shows a coupon: whose it is, and what became of it",
        ONE_WORD("COUPON"),
        .examples = EXAMPLES("dibs coupon show 42-17", "dibs coupon show 42-17-K7Q2M9XDA3WPH"),
        .shared_options = exchange_options,
        .run = command_coupon_show,
    },
    {
        .name = "cancel",
        .summary = "Takes a coupon back; its unit can be claimed again",
        ONE_WORD("COUPON"),
        .examples = EXAMPLES("dibs coupon cancel 42-17"),
        .shared_options = exchange_options,
        .run = command_coupon_cancel,
    },
    {
        .name = "redeem",
        .summary = "Notes that a coupon was used",
        ONE_WORD("COUPON"),
        .examples = EXAMPLES("dibs coupon redeem 42-17-K7Q2M9XDA3WPH --order 9001"),
        .options = OPTIONS({"order", "ID", "The order that it was used for."}),
        .shared_options = exchange_options,
        .run = command_coupon_redeem,
    },
    {
        .name = "reissue",
        .summary = "Puts a new coupon, with a new code, in the place of one",
        ONE_WORD("COUPON"),
        .examples = EXAMPLES("dibs coupon reissue 42-17"),
        .description =
            "For a code that was lost or has leaked. The old one is cancelled and its user "
            "has the new one, in one step: no unit is free in between, and a policy that is "
            "sold out or closed is no obstacle. Asking again is safe: the coupon is given "
            "anew once.",
        .shared_options = exchange_options,
        .run = command_coupon_reissue,
    },
    {.name = NULL},
};

static const struct command dead_commands[] = {
    {
        .name = "list",
        .summary = "Lists them: whose they were, and why they came to nothing",
        .examples = EXAMPLES("dibs dead list", "dibs dead list --json --limit 10"),
        .options = OPTIONS({"limit", "N", "With --json: how many letters a page has. [1000]"},
                           {"after", "CURSOR", "With --json: the `next` of the page before."}),
        .shared_options = exchange_options,
        .run = command_dead_list,
    },
    {
        .name = "retry",
        .summary = "Lets the user win again, with a fresh unit and seq, or says why not",
        ONE_WORD("LETTER"),
        .examples = EXAMPLES("dibs dead retry 42-17"),
        .shared_options = exchange_options,
        .run = command_dead_retry,
    },
    {
        .name = "drop",
        .summary = "Puts one away",
        ONE_WORD("LETTER"),
        .examples = EXAMPLES("dibs dead drop 42-17"),
        .shared_options = exchange_options,
        .run = command_dead_drop,
    },
    {.name = NULL},
};

static const struct command user_commands[] = {
    {
        .name = "block",
        .summary = "Lets a person win nothing from now on; coupons they hold stay",
        ONE_WORD("USER"),
        .examples = EXAMPLES("dibs user block mallory"),
        .shared_options = exchange_options,
        .run = command_user_block,
    },
    {
        .name = "unblock",
        .summary = "Lets them win again",
        ONE_WORD("USER"),
        .examples = EXAMPLES("dibs user unblock mallory"),
        .shared_options = exchange_options,
        .run = command_user_unblock,
    },
    {
        .name = "erase",
        .summary = "Replaces a person's id by a pseudonym everywhere, for good",
        ONE_WORD("USER"),
        .examples = EXAMPLES("dibs user erase u1", "dibs user erase u1 --anyway"),
        .description =
            "Coupons, sums and limits stay as they are, under a pseudonym. Who comes with the old "
            "id afterwards is new: so it is refused while they hold a coupon of a policy that is "
            "not over, or are blocked. When it was cut short, run it again.",
        .options = OPTIONS({"anyway", NULL, "Erase them though they could claim again."}),
        .shared_options = exchange_options,
        .run = command_user_erase,
    },
    {.name = NULL},
};

static const struct command webhook_commands[] = {
    {
        .name = "show",
        .summary = "Shows whether events arrive, and how many wait",
        .examples = EXAMPLES("dibs webhook show", "dibs webhook show --json | jq -r .state"),
        .shared_options = exchange_options,
        .run = command_webhook_show,
    },
    {
        .name = "test",
        .summary = "Sends a test event now; when it arrives, what waits is tried at once",
        .examples = EXAMPLES("dibs webhook test"),
        .shared_options = exchange_options,
        .run = command_webhook_test,
    },
    {
        .name = "enable",
        .summary = "Tries what waits at once, without waiting for its time",
        .examples = EXAMPLES("dibs webhook enable"),
        .shared_options = exchange_options,
        .run = command_webhook_enable,
    },
    {
        .name = "redeliver",
        .summary = "Tells once more of every change since a time",
        .examples = EXAMPLES("dibs webhook redeliver --since 2026-11-15T12:00:00Z",
                             "dibs webhook redeliver --since 2026-11-15T12:00:00Z --policy 42"),
        .description = "The events come behind those that wait, in the order of the changes, with "
                       "the ids that they had.",
        .options = OPTIONS({"since", "TIME", "Of changes from this time on."},
                           {"policy", "N", "Of this policy only."}),
        .shared_options = exchange_options,
        .run = command_webhook_redeliver,
    },
    {.name = NULL},
};

static const struct command commands[] = {
    {
        .name = "serve",
        .summary = "Runs the server",
        .examples =
            EXAMPLES("dibs serve", "dibs serve --listen 127.0.0.1:9000 --log-format json",
                     "dibs serve --listen 0.0.0.0:8080 --admin-token-file /etc/dibs/admin_token",
                     "dibs serve --config /etc/dibs/dibs.conf"),
        .description = "Serves the API until it gets SIGTERM or SIGINT; then it answers what is in "
                       "flight, commits it and exits.",
        .takes_settings = true,
        .run = command_serve,
    },
    {
        .name = "worker",
        .summary = "Writes what the gate in Redis has decided into the ledger",
        .examples = EXAMPLES(
            "dibs worker --gate redis://127.0.0.1:6379 --ledger postgres://dibs@db.example/shop",
            "dibs worker --config /etc/dibs/dibs.conf"),
        .description = "Run one or more beside the servers that share a Redis. Until SIGTERM or "
                       "SIGINT, then it drains what is pending and exits. Takes the flags of "
                       "serve.",
        .takes_settings = true,
        .run = command_worker,
    },
    {
        .name = "policy",
        .summary = "Creates, lists and changes what is handed out",
        .examples = EXAMPLES("dibs policy list", "dibs policy show 42", "dibs policy pause 42"),
        .subcommands = policy_commands,
    },
    {
        .name = "claim",
        .summary = "Claims a coupon for a user",
        .words = "POLICY USER",
        .arguments_min = 2,
        .arguments_max = 2,
        .examples = EXAMPLES("dibs claim 42 u1", "dibs claim 42 u1 --key order-7001 --json"),
        .description = "Asking again is safe: who holds a coupon gets the same one. Where a user "
                       "may hold several, a repeat needs the same --key.",
        .options = OPTIONS({"key", "KEY", "Names this attempt, so that a repeat finds its claim."}),
        .shared_options = exchange_options,
        .run = command_claim,
    },
    {
        .name = "status",
        .summary = "Shows how the server and its policies stand, one policy, or one user's claim",
        .words = "[POLICY [USER]]",
        .arguments_min = 0,
        .arguments_max = 2,
        .examples = EXAMPLES("dibs status", "dibs status 42", "dibs status 42 u1",
                             "dibs status 42 u1 --wait 10",
                             "dibs status --ready --url http://127.0.0.1:9090"),
        .options =
            OPTIONS({"wait", "SECONDS", "Wait so long for the claim to become final."},
                    {"ready", NULL,
                     "Say only whether it can serve, as exit code 0 or 1; needs no token, and "
                     "asks a worker, too."}),
        .shared_options = exchange_options,
        .run = command_status,
    },
    {
        .name = "product",
        .summary = "Shows which products sell best, and tells what they are called and cost",
        .examples = EXAMPLES("dibs product top", "dibs product rank sku-7",
                             "dibs product import products.jsonl"),
        .subcommands = product_commands,
    },
    {
        .name = "coupon",
        .summary = "Looks at a coupon, takes it back, notes that it was used, gives it anew",
        .examples = EXAMPLES("dibs coupon show 42-17", "dibs coupon redeem 42-17 --order 9001"),
        .subcommands = coupon_commands,
    },
    {
        .name = "user",
        .summary = "Blocks a person, or erases one",
        .examples = EXAMPLES("dibs user block mallory", "dibs user erase u1"),
        .subcommands = user_commands,
    },
    {
        .name = "dead",
        .summary = "Looks after claims that were won in Redis and could not be issued",
        .examples = EXAMPLES("dibs dead list", "dibs dead retry 42-17", "dibs dead drop 42-17"),
        .subcommands = dead_commands,
    },
    {
        .name = "actions",
        .summary = "Lists what operators did, the latest first",
        .examples = EXAMPLES("dibs actions", "dibs actions --json --limit 10 | jq .items"),
        .options = OPTIONS({"limit", "N", "With --json: how many actions a page has. [1000]"},
                           {"after", "CURSOR", "With --json: the `next` of the page before."}),
        .shared_options = exchange_options,
        .run = command_actions,
    },
    {
        .name = "webhook",
        .summary = "Looks after the webhook: whether events arrive, a test, telling once more",
        .examples = EXAMPLES("dibs webhook show", "dibs webhook test",
                             "dibs webhook redeliver --since 2026-11-15T12:00:00Z"),
        .subcommands = webhook_commands,
    },
    {
        .name = "rush",
        .summary = "Storms a drop and proves that it was exact",
        .examples = EXAMPLES(
            "dibs rush", "dibs rush --total 1000 --users 5000",
            "dibs rush --policy 42 --users 100000 --rate 50000 --duration 30s --report rush.html",
            "dibs rush --total 1000 --users 2000 --bursts 200 --every 2s --retry 3",
            "dibs rush --policies 4 --total 200 --users 1000 --topics kafka://localhost:9092",
            "dibs rush --rehearse --policy 42 --users 50000 --report rehearsal.html"),
        .description =
            "Presses the button for many people at once, writes down what each was told, and holds "
            "that against what a drop promises: as many winners as coupons, no seq twice, nobody "
            "over the limit, first come first served, a coupon for every winner. Exits with 3 when "
            "something is broken, with 1 when it could not be proven, with 4 when --p99 is missed. "
            "Without --rate or --bursts each connection presses again as soon as it has an answer. "
            "The coupons of a --policy that is there are really given out.",
        .options = OPTIONS(
            {"policy", "N", "Storm this policy, or rehearse it."},
            {"total", "N", "Make a policy of so many coupons, and close it in the end. [1000]"},
            {"per-user-limit", "N", "Of the policy that is made. [1]"},
            {"policies", "N", "Make so many policies of --total coupons, and storm all at once."},
            {"rehearse", NULL, "Storm a copy of --policy, which itself is left alone."},
            {"users", "N",
             "How many people press, in each policy. [twice the coupons, at least "
             "100]"},
            {"user-key-file", "FILE", "Sign a token for each of them with this key: the server's."},
            {"user-audience", "TEXT", "With --user-key-file: the aud of their tokens."},
            {"connections", "N", "How many connections they share; -c for short. [256]"},
            {"closed", NULL, "Press again as soon as an answer is there: the default."},
            {"rate", "N", "Press so often a second, whatever the answers do."},
            {"ramp", NULL, "Rise to the rate evenly, from nothing."},
            {"bursts", "N", "Press so often at once, again and again."},
            {"every", "DURATION", "Between bursts. [1s]"},
            {"duration", "DURATION", "For so long; left out, until everybody has pressed once."},
            {"at", "TIME", "Begin at this time, as in 2026-11-15T12:00:00+09:00."},
            {"duplicates", "SHARE", "So many press twice, as in 10%."},
            {"retry", "N", "Press again up to so often after a 503 or a lost answer. [0]"},
            {"settle", "DURATION", "Wait so long for what is pending in the end. [30s]"},
            {"p99", "DURATION", "Exit with 4 when the 99th percentile is slower."},
            {"report", "FILE", "Write a page with pictures that opens in any browser."},
            {"topics", "URL", "What the topic of claims got, as in kafka://localhost:9092."},
            {"keep", NULL, "Do not close the policy that was made."}),
        .shared_options = exchange_options,
        .initial = "connections",
        .run = command_rush,
    },
    {
        .name = "audit",
        .summary = "Checks that every coupon and every unit of stock is where it should be",
        .examples = EXAMPLES("dibs audit", "dibs audit --policy 42 --json", "dibs audit --repair",
                             "dibs audit --repair --yes", "dibs audit --watch --interval 30s",
                             "dibs audit --gate redis://cache --ledger postgres://db/shop",
                             "dibs audit --history"),
        .description =
            "Holds gate, pending claims and ledger against each other, policy by policy, while "
            "people claim, and exits with 3 when something is wrong that stays so. Asks a running "
            "server, or with --gate and --ledger (or DIBS_GATE) looks at Redis and the database "
            "itself. --repair shows what it would do and asks; it takes no coupon from anyone, and "
            "--history shows what repairs have done. After the database was restored from an "
            "older backup, or failed over to a replica that lagged, it writes what the database "
            "lacks from the memory of a server with a local gate (do not restart that before), or "
            "from Redis.",
        .options = OPTIONS({"policy", "N", "Look at this policy only."},
                           {"watch", NULL, "Look again and again, a line each, until interrupted."},
                           {"interval", "DURATION", "Between looks of --watch. [10s]"},
                           {"repair", NULL, "Put right what is wrong."},
                           {"yes", NULL, "Repair without asking."},
                           {"forget", NULL,
                            "Let a policy go that the ledger has lost, with a dead letter for each "
                            "claim, instead of writing it back; with --policy."},
                           {"history", NULL, "Show what repairs have done."}),
        .shared_options = exchange_options,
        .takes_settings = true,
        .run = command_audit,
    },
    {
        .name = "top",
        .summary = "Watches a server and its drops live",
        .examples = EXAMPLES("dibs top", "dibs top --once", "dibs top --json"),
        .description = "Shows policies with what is left of them, claims a second by their result, "
                       "latencies, what is pending, whether each part is ready, and what happened. "
                       "Keys: up and down select a policy, p pauses it and r resumes it (both ask "
                       "first), q quits.",
        .options = OPTIONS({"once", NULL, "Print how it stands, after a second, and exit."},
                           {"interval", "DURATION", "Between looks. [1s]"}),
        .shared_options = exchange_options,
        .run = command_top,
    },
    {
        .name = "backup",
        .summary = "Copies a SQLite ledger to a new file while it is in use, and verifies it",
        ONE_WORD("FILE"),
        .examples = EXAMPLES("dibs backup /backup/dibs-$(date +%F).db",
                             "dibs backup copy.db --ledger sqlite:/var/lib/dibs/dibs.db --json"),
        .description =
            "The copy has every coupon that was answered before, is whole, and its stock "
            "adds up; else there is none. Only its owner may read it: it holds the key "
            "of the coupon codes. Takes the flags of serve.",
        .options = OPTIONS({"json", NULL, "Print JSON."}),
        .takes_settings = true,
        .run = command_backup,
    },
    {
        .name = "restore",
        .summary = "Puts a copy of a SQLite ledger in its place",
        ONE_WORD("FILE"),
        .examples = EXAMPLES("dibs restore /backup/dibs-2026-11-15.db",
                             "dibs restore copy.db --ledger sqlite:/var/lib/dibs/dibs.db --yes"),
        .description = "Verifies the copy first, and refuses while a server runs on the ledger. "
                       "What happened after the copy was taken is gone then: where a server still "
                       "runs, `dibs audit --repair` can save it. Takes the flags of serve.",
        .options = OPTIONS({"yes", NULL, "Also where a ledger is, which is moved aside."},
                           {"json", NULL, "Print JSON."}),
        .takes_settings = true,
        .run = command_restore,
    },
    {
        .name = "migrate",
        .summary = "Brings the ledger's schema up to date",
        .examples = EXAMPLES("dibs migrate --dry-run", "dibs migrate",
                             "dibs migrate --ledger postgres://dibs_owner@db.example/shop --json"),
        .description = "serve does the same when it starts; use this where serve may not change "
                       "the schema, or to see first what would be done. Takes the flags of serve.",
        .options =
            OPTIONS({"dry-run", NULL, "Print the SQL of what is missing, and change nothing."},
                    {"json", NULL, "Print JSON."}),
        .takes_settings = true,
        .run = command_migrate,
    },
    {
        .name = "config",
        .summary = "Shows every setting in effect and where it came from",
        .examples = EXAMPLES("dibs config", "dibs config --json",
                             "dibs config --config /etc/dibs/dibs.conf"),
        .description = "Takes the flags of serve, and fails when serve would refuse them. Secrets "
                       "are not shown.",
        .options = OPTIONS({"json", NULL, "Print JSON."}),
        .takes_settings = true,
        .run = command_config,
    },
    {
        .name = "version",
        .summary = "Shows what this binary is",
        .examples = EXAMPLES("dibs version", "dibs version --json"),
        .options = OPTIONS({"json", NULL, "Print JSON."}),
        .run = command_version,
    },
    {
        .name = "help",
        .summary = "Shows how a command is used",
        .words = "[COMMAND]",
        .arguments_max = 2,
        .examples = EXAMPLES("dibs help", "dibs help serve", "dibs help policy create"),
        .run = command_help,
    },
    {
        .name = "completion",
        .summary = "Prints the completion script for a shell",
        ONE_WORD("SHELL"),
        .examples = EXAMPLES("source <(dibs completion bash)", "dibs completion fish | source",
                             "source <(dibs completion zsh)"),
        .hidden = true,
        .run = command_completion,
    },
    {
        .name = "manual",
        .summary = "Prints the man page, or the page about settings",
        .words = "[configuration]",
        .arguments_max = 1,
        .examples =
            EXAMPLES("dibs manual | man -l -", "dibs manual configuration > docs/configuration.md"),
        .hidden = true,
        .run = command_manual,
    },
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return command_main(commands, argc, argv);
}
