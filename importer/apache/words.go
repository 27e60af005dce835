package apache

import (
	"errors"
	"strings"
)

// words splits a line: its first word, and the others. Those of mod_rewrite have
// rules of their own: a backslash keeps a space in a word.
func words(line string) (name string, args []string, err error) {
	line = strings.TrimSpace(line)
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return line, nil, nil
	}
	name, rest := line[:i], line[i:]
	escapes := strings.HasPrefix(strings.ToLower(name), "rewrite")
	for {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return name, args, nil
		}
		var word string
		if word, rest, err = nextWord(rest, escapes); err != nil {
			return "", nil, err
		}
		args = append(args, word)
	}
}

// nextWord takes one word off a text that does not begin with a space.
func nextWord(text string, escapes bool) (word, rest string, err error) {
	if q := text[0]; q == '"' || q == '\'' {
		var b strings.Builder
		for i := 1; i < len(text); i++ {
			switch c := text[i]; {
			case c == '\\' && i+1 < len(text) && (text[i+1] == q || text[i+1] == '\\' && !escapes):
				i++
				b.WriteByte(text[i])
			case c == q:
				return b.String(), text[i+1:], nil
			default:
				b.WriteByte(c)
			}
		}
		return "", "", errors.New("a quote is not closed")
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case escapes && c == '\\' && i+1 < len(text):
			i++ // what follows belongs to the word
		case c == ' ' || c == '\t':
			return plain(text[:i], escapes), text[i:], nil
		}
	}
	return plain(text, escapes), "", nil
}

// plain is a word without quotes: two backslashes are one.
func plain(word string, escapes bool) string {
	if escapes {
		return word
	}
	return strings.ReplaceAll(word, `\\`, `\`)
}
