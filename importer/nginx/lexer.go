package nginx

import (
	"errors"
	"fmt"
	"strings"
)

type tokenKind int

const (
	isEnd tokenKind = iota // of the file
	isWord
	isSemicolon
	isOpen
	isClose
)

// lexer splits a file as nginx does (ngx_conf_read_token): quotes count at the
// beginning of a word alone, and braces within one belong to a variable.
type lexer struct {
	name      string
	remaining string
	line      int
	start     int    // the line on which the last word began
	raw       string // the last word, with its quotes and backslashes
}

const space = " \t\r\n"

func (l *lexer) next() (string, tokenKind, error) {
	l.skip()
	if l.remaining == "" {
		return "", isEnd, nil
	}
	l.start = l.line
	switch c := l.remaining[0]; c {
	case ';', '{', '}':
		l.remaining = l.remaining[1:]
		return "", map[byte]tokenKind{';': isSemicolon, '{': isOpen, '}': isClose}[c], nil
	case '"', '\'':
		w, err := l.quoted(c)
		return w, isWord, err
	}
	return l.plain(), isWord, nil
}

// skip passes white space and comments.
func (l *lexer) skip() {
	for {
		trimmed := strings.TrimLeft(l.remaining, space)
		l.take(len(l.remaining) - len(trimmed))
		if !strings.HasPrefix(l.remaining, "#") {
			return
		}
		end := strings.IndexByte(l.remaining, '\n')
		if end < 0 {
			end = len(l.remaining)
		}
		l.take(end)
	}
}

// take goes on by n bytes.
func (l *lexer) take(n int) string {
	taken := l.remaining[:n]
	l.line += strings.Count(taken, "\n")
	l.remaining = l.remaining[n:]
	return taken
}

func (l *lexer) quoted(quote byte) (string, error) {
	for i := 1; i < len(l.remaining); i++ {
		switch l.remaining[i] {
		case '\\':
			i++
		case quote:
			l.raw = l.take(i + 1)
			if l.remaining != "" && !strings.ContainsRune(space+";{)", rune(l.remaining[0])) {
				return "", fmt.Errorf("%q stands right behind a closing quote", l.remaining[:1])
			}
			return unescape(l.raw[1 : len(l.raw)-1]), nil
		}
	}
	return "", errors.New("a quote is not closed")
}

func (l *lexer) plain() string {
	i := 0
	for i < len(l.remaining) {
		switch c := l.remaining[i]; {
		case c == '\\':
			i++
		case strings.IndexByte(space, c) >= 0, c == ';', c == '{' && (i == 0 || l.remaining[i-1] != '$'):
			l.raw = l.take(i)
			return unescape(l.raw)
		}
		i++
	}
	l.raw = l.take(len(l.remaining))
	return unescape(l.raw)
}

// unescape does what nginx does with backslashes: quotes and the backslash lose
// theirs, t, r and n are control characters, before all else it stays.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '"', '\'', '\\':
			b.WriteByte(c)
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}

// code is the source of a block of Lua, up to the brace that closes it. Strings
// and comments may hold braces.
func (l *lexer) code() (string, error) {
	depth := 1
	for i := 0; i < len(l.remaining); i++ {
		switch c := l.remaining[i]; {
		case strings.HasPrefix(l.remaining[i:], "--"):
			if n := strings.IndexByte(l.remaining[i:], '\n'); n > 0 {
				i += n
			}
		case c == '"', c == '\'':
			i += quotedLength(l.remaining[i:])
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				code := l.take(i)
				l.take(1)
				return code, nil
			}
		}
	}
	return "", errors.New("a block of Lua is not closed: \"}\" is missing")
}

// quotedLength is how many bytes follow the quote that s begins with.
func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0], '\n':
			return i
		}
	}
	return 0
}
