/* input: the lines of stdin, of bounded length, as many at a time as there are. */
#ifndef INPUT_H
#define INPUT_H

#include <stdbool.h>
#include <stddef.h>

struct input {
    size_t nlongest; /* bytes of the longest line that is taken */
    char *buffer;    /* lines that were handed out, then what was read behind them */
    size_t nbuffer, room;
    size_t taken;   /* bytes that were handed out or skipped */
    size_t scanned; /* bytes from the start that were searched for the end of the line at hand */
    bool skipping;  /* in the middle of a line that is too long */
    bool ended;     /* no more input */
    unsigned long long number; /* of the line that was handed out last */
};

enum line { LINE_TAKEN, LINE_EMPTY, LINE_TOO_LONG, LINE_NONE };

/* The next line without its end, \n or \r\n. It stays where it is until the next input_read.
 * LINE_NONE: all that was read is handed out. */
enum line input_take(struct input *input, const char **line, size_t *length);

/* Waits for more input and reads it; false if that was interrupted, or failed with errno. Before,
 * all that was read must have been taken. */
bool input_read(struct input *input);

#endif
