/* What the server says about the commands: COMMAND DOCS, INFO and GETKEYS, and the help of
 * redis-cli, which is made from them. */
#include "check.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The element after the one that is `name`, in a flat list of names and values; NULL if there is
 * none. */
static const redisReply *value_of(const redisReply *list, const char *name) {
    for (size_t i = 0; list && i + 1 < list->elements; i += 2)
        if (list->element[i]->str && strcmp(list->element[i]->str, name) == 0)
            return list->element[i + 1];
    return NULL;
}

static bool has_text(const redisReply *reply, const char *end) {
    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len == 0) return false;
    return !end || strcmp(reply->str + reply->len - strlen(end), end) == 0;
}

/* Also fails for a command that was added and forgotten in docs.c. */
TEST(every_command_is_documented) {
    Client *c = server_start(NULL)->client;
    const redisReply *names = command(c, "COMMAND LIST FILTERBY MODULE bf");
    CHECK(names->elements >= 12);
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str;
        const redisReply *reply = command(c, "COMMAND DOCS %s", name);
        const redisReply *docs = reply->elements == 2 ? reply->element[1] : NULL;
        const redisReply *arguments = value_of(docs, "arguments");
        const bool complete = has_text(value_of(docs, "summary"), ".") &&
                              has_text(value_of(docs, "complexity"), NULL) &&
                              has_text(value_of(docs, "since"), NULL) &&
                              has_text(value_of(docs, "group"), "module") && arguments &&
                              arguments->type == REDIS_REPLY_ARRAY && arguments->elements > 0;
        if (!CHECK(complete)) CHECK_FAIL("incomplete: %s", name);
    }
}

/* Since 7.2 an argument has, next to its name, a text to show. The module gives none; the server
 * takes the name then. */
static int check_display_texts(const redisReply *arguments, const char *of) {
    int ntexts = 0;
    for (size_t i = 0; arguments && i < arguments->elements; i++) {
        const redisReply *argument = arguments->element[i], *name = value_of(argument, "name"),
                         *text = value_of(argument, "display_text");
        if (!CHECK(name && name->str)) continue;
        if (text) {
            ntexts++;
            if (!CHECK_STR(text->str, name->str)) CHECK_FAIL("argument %zu of %s", i, of);
        }
        ntexts += check_display_texts(value_of(argument, "arguments"), of);
    }
    return ntexts;
}

TEST(arguments_are_shown_by_their_own_names) {
    Server *s = server_start(NULL);
    const redisReply *names = command(s->client, "COMMAND LIST FILTERBY MODULE bf");
    const redisReply *set = command(s->client, "COMMAND DOCS SET");
    REQUIRE(set->elements == 2 && value_of(set->element[1], "arguments"));
    const redisReply *first = value_of(set->element[1], "arguments")->element[0];
    const bool has_texts = value_of(first, "display_text") != NULL;
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str;
        const redisReply *docs = command(s->client, "COMMAND DOCS %s", name)->element[1];
        CHECK_INT(check_display_texts(value_of(docs, "arguments"), name) > 0, has_texts);
    }
}

/* Names an element that COMMAND INFO has for the command, as text. */
static void check_info(Client *c, const char *name, int arity, const char *key_flags) {
    const redisReply *reply = command(c, "COMMAND INFO %s", name);
    const redisReply *info = reply->elements == 1 ? reply->element[0] : NULL;
    if (!info || info->elements < 9) {
        CHECK_FAIL("no COMMAND INFO for %s", name);
        return;
    }
    if (!CHECK_INT(info->element[1]->integer, arity)) CHECK_FAIL("arity of %s", name);
    char *keys = keep(reply_text(info->element[8]));
    if (!text_matches(keys, key_flags)) CHECK_FAIL("key specs of %s: %s", name, keys);
}

TEST(arity_and_key_flags_are_declared) {
    Client *c = server_start(NULL)->client;
    check_info(c, "bf.reserve", -4, "...+OW +insert...");
    check_info(c, "bf.add", 3, "...+RW +access +insert...");
    check_info(c, "bf.madd", -3, "...+RW +access +insert...");
    check_info(c, "bf.insert", -4, "...+RW +access +insert...");
    check_info(c, "bf.exists", 3, "...+RO +access...");
    check_info(c, "bf.mexists", -3, "...+RO +access...");
    check_info(c, "bf.card", 2, "...*1 +RO...");
    check_info(c, "bf.info", -2, "...*1 +RO...");
    check_info(c, "bf.debug", 2, "...*1 +RO...");
    check_info(c, "bf.shards", -2, "...*1 +RO...");
    check_info(c, "bf.heal", 2, "...*2 +RW +update...");
    check_info(c, "bf.merge", -3, "...+RW +access +insert...+RO +access...");
    check_info(c, "bf.merged", 10, "...+RW +access +update...+RO +access...");
    check_info(c, "bf.descriptor", 2, "...+RO +access...");
    check_info(c, "bf.setdescriptor", 3, "...+RW +access +update...");
    check_info(c, "bf.nextid", 3, "...+OW +insert...");
    check_info(c, "bf.scandump", 3, "...+RO +access...");
    check_info(c, "bf.loadchunk", 4, "...*2 +RW +update...");
    check_info(c, "bf.leaves", 2, "...+RW +access +update...");
    check_info(c, "bf.plan", -3, "*0");
}

TEST(keys_are_found) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "*1 \"k\"", "COMMAND GETKEYS BF.INSERT k CAPACITY 10 ITEMS a b");
    EXPECT(c, "*1 \"k\"", "COMMAND GETKEYS BF.MADD k a b c");
    EXPECT(c, "*1 *2 \"k\" *3 +RW +access +insert", "COMMAND GETKEYSANDFLAGS BF.ADD k a");
    EXPECT(c, "*1 *2 \"k\" *2 +RO +access", "COMMAND GETKEYSANDFLAGS BF.EXISTS k a");
    EXPECT(c, "-ERR...no key arguments", "COMMAND GETKEYS BF.PLAN 0.01 100");
}

/* The server counts arguments before the command does, with the same words. */
TEST(wrong_arity_is_an_error) {
    Client *c = server_start(NULL)->client;
    const char *lines[] = {"BF.RESERVE k 0.1",
                           "BF.ADD k",
                           "BF.ADD k a b",
                           "BF.MADD k",
                           "BF.INSERT k a",
                           "BF.EXISTS k",
                           "BF.EXISTS k a b",
                           "BF.MEXISTS k",
                           "BF.CARD",
                           "BF.CARD k k",
                           "BF.INFO",
                           "BF.INFO k SIZE 1",
                           "BF.DEBUG",
                           "BF.DEBUG k k",
                           "BF.PLAN 0.1",
                           "BF.SHARDS",
                           "BF.MERGE k",
                           "BF.HEAL",
                           "BF.DESCRIPTOR",
                           "BF.SHARDS k FROM 0 0 COUNT 1 x",
                           "BF.HEAL k k",
                           "BF.DESCRIPTOR k a",
                           "BF.SETDESCRIPTOR k",
                           "BF.NEXTID k"};
    for (size_t i = 0; i < N(lines); i++)
        if (!EXPECT(c, "-ERR wrong number of arguments for 'bf...' command", lines[i]))
            CHECK_FAIL("%s", lines[i]);
}

/* What redis-cli shows for "help COMMAND", and while one types: it has both from COMMAND DOCS. */
TEST(redis_cli_shows_the_syntax) {
    static const char *const syntax[][2] = {
        {"bf.reserve", "key error_rate capacity [EXPANSION expansion|NONSCALING] [SEED seed] "
                       "[SHARDSIZE bytes] [WINDOW seconds [SLICES slices] [SLIDING]]"},
        {"bf.insert",
         "key [CAPACITY capacity] [ERROR error_rate] [EXPANSION expansion|NONSCALING] [SEED seed] "
         "[SHARDSIZE bytes] [WINDOW seconds [SLICES slices] [SLIDING]] [NOCREATE] ITEMS item [item "
         "...]"},
        {"bf.mexists", "key item [item ...]"},
        {"bf.info", "key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION|WINDOW|SLICES|SLIDING|AGE|ERROR]"},
    };
    Server *s = server_start(NULL);
    for (size_t i = 0; i < N(syntax); i++) {
        char line[1024], output[2048] = "";
        snprintf(line, sizeof(line), "timeout 60 %s -p %d help %s", server_cli(), s->port,
                 syntax[i][0]);
        FILE *cli = popen(line, "r");
        REQUIRE(cli);
        size_t n = fread(output, 1, sizeof(output) - 1, cli);
        output[n] = '\0';
        CHECK_INT(pclose(cli), 0);
        if (!CHECK(strstr(output, syntax[i][1]))) CHECK_FAIL("%s says: %s", server_cli(), output);
    }
}

/* A code in capital letters, then what is wrong, in one line without a full stop. */
static bool has_style(const char *error) {
    size_t ncode = strspn(error + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    const char *text = error + 1 + ncode;
    size_t length = strlen(text);
    return error[0] == '-' && ncode >= 3 && length > 4 && text[0] == ' ' && text[1] != ' ' &&
           text[length - 1] != '.' && !strpbrk(text, "\r\n");
}

TEST(errors_have_one_style) {
    Client *c = server_start(NULL)->client;
    EXPECT(c, "+OK", "BF.RESERVE full 0.001 1 NONSCALING SEED 1");
    EXPECT(c, ":1", "BF.ADD full a");
    EXPECT(c, ":1", "BF.ADD lost a");
    EXPECT(c, ":1", "DEL %s", command(c, "BF.SHARDS lost")->element[0]->element[1]->str);
    EXPECT(c, "+OK", "SET string x");
    const char *lines[] = {"BF.RESERVE full 0.01 100",
                           "BF.RESERVE k x 100",
                           "BF.RESERVE k 2 100",
                           "BF.RESERVE k 1e-300 100",
                           "BF.RESERVE k 0.01 x",
                           "BF.RESERVE k 0.01 100 WINDOW 0",
                           "BF.RESERVE k 0.01 100 WINDOW 60 SLICES 33",
                           "BF.RESERVE k 0.01 100 SLIDING",
                           "BF.RESERVE k 0.01 100 EXPANSION x",
                           "BF.RESERVE k 0.01 100 SEED x",
                           "BF.RESERVE k 0.01 100 SHARDSIZE x",
                           "BF.RESERVE k 0.01 100 WHAT",
                           "BF.RESERVE k 0.01 100 SEED",
                           "BF.RESERVE k 0.01 100 SEED 1 SEED 1",
                           "BF.RESERVE k 0.01 100 EXPANSION 2 NONSCALING",
                           "BF.INSERT k CAPACITY 10",
                           "BF.INSERT k NOCREATE ITEMS a",
                           "BF.INSERT k NOCREATE CAPACITY 10 ITEMS a",
                           "BF.INFO k",
                           "BF.INFO full WHAT",
                           "BF.DEBUG k",
                           "BF.ADD full b",
                           "BF.ADD string a",
                           "BF.EXISTS string a",
                           "BF.EXISTS lost a",
                           "BF.SHARDS k",
                           "BF.HEAL k",
                           "BF.LEAVES full",
                           "BF.MERGE full none",
                           "BF.MERGE k lost",
                           "BF.PLAN x 1",
                           "BF.PLAN 0.1 x",
                           "BF.DESCRIPTOR k",
                           "BF.SETDESCRIPTOR k rubbish",
                           "BF.NEXTID k rubbish",
                           "BF.CARD"};
    for (size_t i = 0; i < N(lines); i++) {
        const char *error = command_text(c, lines[i]);
        if (!CHECK(has_style(error))) CHECK_FAIL("%s answers %s", lines[i], error);
    }
    EXPECT(c, "-ERR CONFIG SET failed...bad error rate...", "CONFIG SET bf.error-rate 7");
    CHECK(!strstr(command_text(c, "CONFIG SET bf.error-rate 7"), "- ERR"));
}
