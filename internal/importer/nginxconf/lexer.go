package nginxconf

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
	name  string
	rest  string
	line  int
	start int // the line on which the last word began
}

const space = " \t\r\n"

func (l *lexer) next() (Word, tokenKind, error) {
	l.skip()
	if l.rest == "" {
		return Word{}, isEnd, nil
	}
	l.start = l.line
	switch c := l.rest[0]; c {
	case ';', '{', '}':
		l.rest = l.rest[1:]
		return Word{}, map[byte]tokenKind{';': isSemicolon, '{': isOpen, '}': isClose}[c], nil
	case '"', '\'':
		w, err := l.quoted(c)
		return w, isWord, err
	}
	return l.plain(), isWord, nil
}

// skip passes white space and comments.
func (l *lexer) skip() {
	for {
		trimmed := strings.TrimLeft(l.rest, space)
		l.take(len(l.rest) - len(trimmed))
		if !strings.HasPrefix(l.rest, "#") {
			return
		}
		end := strings.IndexByte(l.rest, '\n')
		if end < 0 {
			end = len(l.rest)
		}
		l.take(end)
	}
}

// take goes on by n bytes.
func (l *lexer) take(n int) string {
	taken := l.rest[:n]
	l.line += strings.Count(taken, "\n")
	l.rest = l.rest[n:]
	return taken
}

func (l *lexer) quoted(quote byte) (Word, error) {
	for i := 1; i < len(l.rest); i++ {
		switch l.rest[i] {
		case '\\':
			i++
		case quote:
			raw := l.take(i + 1)
			if l.rest != "" && !strings.ContainsRune(space+";{)", rune(l.rest[0])) {
				return Word{}, fmt.Errorf("%q stands right behind a closing quote", l.rest[:1])
			}
			return Word{Text: unescape(raw[1 : len(raw)-1]), Raw: raw, Quoted: true}, nil
		}
	}
	return Word{}, errors.New("a quote is not closed")
}

func (l *lexer) plain() Word {
	i := 0
	for i < len(l.rest) {
		switch c := l.rest[i]; {
		case c == '\\':
			i++
		case strings.IndexByte(space, c) >= 0, c == ';', c == '{' && (i == 0 || l.rest[i-1] != '$'):
			raw := l.take(i)
			return Word{Text: unescape(raw), Raw: raw}
		}
		i++
	}
	raw := l.take(len(l.rest))
	return Word{Text: unescape(raw), Raw: raw}
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
	for i := 0; i < len(l.rest); i++ {
		switch c := l.rest[i]; {
		case strings.HasPrefix(l.rest[i:], "--"):
			if n := strings.IndexByte(l.rest[i:], '\n'); n > 0 {
				i += n
			}
		case c == '"', c == '\'':
			i += quotedLength(l.rest[i:])
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
