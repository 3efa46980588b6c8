package operator

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// shellSafe are the characters that no shell takes for anything else.
const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@%+=,"

// Quote makes a name a word of a shell command that gives it to one of mqctl's
// flags. The flags take a name as it is or, if a double quote comes first, as Go
// writes strings; so a name that would disturb a terminal is in that form. All
// but plain words are put into single quotes.
func Quote(name string) string {
	plain := name == strings.TrimSpace(name) && !strings.HasPrefix(name, `"`) && utf8.ValidString(name) &&
		strings.IndexFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
	if !plain {
		name = strconv.Quote(name)
	}
	if name != "" && strings.Trim(name, shellSafe) == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// mqctl is a complete command line, in backticks, of the flags that have a value:
// name and value in turn.
func mqctl(command string, flags ...string) string {
	var b strings.Builder
	b.WriteString("`mqctl " + command)
	for i := 0; i < len(flags); i += 2 {
		if flags[i+1] != "" {
			b.WriteString(" --" + flags[i] + " " + Quote(flags[i+1]))
		}
	}
	return b.String() + "`"
}
