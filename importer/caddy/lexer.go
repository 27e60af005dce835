package caddy

import (
	"fmt"
	"strings"
)

// token is a word of a Caddyfile.
type token struct {
	text   string
	line   int
	first  bool // it begins a line
	quoted bool
}

// lex splits a file into words as Caddy does: by white space; "…" knows \" as
// an escape, `…` none, and <<END begins a text that ends with a line END.
func lex(file, text string) ([]token, error) {
	l := &lexer{text: text, line: 1, first: true}
	for {
		ok, err := l.next()
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, l.line, err)
		}
		if !ok {
			return l.tokens, nil
		}
	}
}

type lexer struct {
	text   string
	at     int
	line   int
	first  bool
	tokens []token
}

// next reads a word; false at the end.
func (l *lexer) next() (bool, error) {
	for l.at < len(l.text) {
		switch c := l.text[l.at]; {
		case c == '\n':
			l.line, l.first = l.line+1, true
			l.at++
		case c == ' ', c == '\t', c == '\r':
			l.at++
		case c == '\\' && (strings.HasPrefix(l.text[l.at+1:], "\n") || strings.HasPrefix(l.text[l.at+1:], "\r\n")):
			l.at += strings.IndexByte(l.text[l.at:], '\n') + 1
			l.line++ // the line goes on
		case c == '#':
			end := strings.IndexByte(l.text[l.at:], '\n')
			if end < 0 {
				return false, nil
			}
			l.at += end
		case c == '"', c == '`':
			return true, l.quoted(c)
		case strings.HasPrefix(l.text[l.at:], "<<"):
			if done, err := l.heredoc(); done || err != nil {
				return true, err
			}
			l.word()
			return true, nil
		default:
			l.word()
			return true, nil
		}
	}
	return false, nil
}

func (l *lexer) add(text string, line int, quoted bool) {
	l.tokens = append(l.tokens, token{text, line, l.first, quoted})
	l.first = false
}

func (l *lexer) word() {
	var b strings.Builder
	for l.at < len(l.text) {
		c := l.text[l.at]
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			break
		}
		if c == '\\' && l.at+1 < len(l.text) && (l.text[l.at+1] == '{' || l.text[l.at+1] == '}') && b.Len() == 0 {
			l.at++ // an escaped brace is text
			c = l.text[l.at]
		}
		b.WriteByte(c)
		l.at++
	}
	l.add(b.String(), l.line, false)
}

func (l *lexer) quoted(quote byte) error {
	line := l.line
	var b strings.Builder
	for l.at++; l.at < len(l.text); l.at++ {
		c := l.text[l.at]
		switch {
		case c == quote:
			l.at++
			l.add(b.String(), line, true)
			return nil
		case c == '\\' && quote == '"' && l.at+1 < len(l.text) && l.text[l.at+1] == '"':
			l.at++
			c = '"'
		case c == '\n':
			l.line++
		}
		b.WriteByte(c)
	}
	return fmt.Errorf("the quote that begins in line %d does not end", line)
}

// heredoc reads <<END; false: it is a word like any other.
func (l *lexer) heredoc() (bool, error) {
	head, rest, ok := strings.Cut(l.text[l.at+2:], "\n")
	marker := strings.TrimSuffix(head, "\r")
	if !ok || marker == "" || strings.Trim(marker, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return false, nil
	}
	line := l.line
	lines := strings.SplitAfter(rest, "\n")
	used := len(l.text) - l.at - len(rest)
	for i, text := range lines {
		body := strings.TrimLeft(text, " \t")
		if after, is := strings.CutPrefix(body, marker); !is || after != "" && !strings.ContainsAny(after[:1], " \t\r\n") {
			used += len(text)
			continue
		}
		indent := text[:len(text)-len(body)]
		var b strings.Builder
		for _, t := range lines[:i] {
			b.WriteString(strings.TrimPrefix(strings.ReplaceAll(t, "\r\n", "\n"), indent))
		}
		l.line += i + 1
		l.at += used + len(indent) + len(marker) // what follows the marker are words again
		l.add(strings.TrimSuffix(b.String(), "\n"), line, true)
		return true, nil
	}
	return false, fmt.Errorf("no line is %q, which ends the text that begins in line %d", marker, line)
}
