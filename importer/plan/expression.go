package plan

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// longest is how long an expression may be, in bytes.
const longest = 1000

// Expression is a regular expression of PCRE as RE2 has it, ignoring case if asked.
//
// RE2 does not look ahead. What configs look ahead for, "not followed by", can be said in
// two other ways: by a second expression that a rule excepts ([Excepting]), where the place
// is always the same or what stands there begins every hidden name, and by listing what may
// follow instead, where it is not followed by plain words.
func Expression(text string, ignoreCase bool) (string, error) {
	text = strings.ReplaceAll(text, "(?<", "(?P<")
	text = strings.ReplaceAll(text, "(?P<=", "(?<=") // looking behind, which RE2 cannot
	text = strings.ReplaceAll(text, "(?P<!", "(?<!")
	text = regexp.MustCompile(`\\([/ "':,;=&%@#!~<>])`).ReplaceAllString(text, "$1") // needless backslashes
	text = listing(text)
	if ignoreCase {
		text = "(?i)" + text
	}
	if len(text) > longest {
		return "", fmt.Errorf("the expression is longer than %d bytes", longest)
	}
	if _, err := regexp.Compile(text); err != nil {
		return "", fmt.Errorf("the regular expression looks ahead or behind, or refers back, which RE2 cannot (%w)", err)
	}
	return text, nil
}

// ahead opens what must not follow.
const ahead = "(?!"

// Wider is an expression of PCRE without what it looks for before and behind, so that it
// matches whatever that does: for those that keep clients out.
func Wider(text string) string {
	for {
		at := regexp.MustCompile(`\(\?<?[=!]`).FindStringIndex(text)
		if at == nil {
			return text
		}
		end := draft.Closing(text[at[1]:])
		if end < 0 {
			return text
		}
		text = text[:at[0]] + text[at[1]+end+1:]
	}
}

// LooksAhead reports whether an expression of PCRE does.
func LooksAhead(text string) bool { return strings.Contains(text, ahead) }

// Excepting splits an expression that looks ahead into two, for the path and for what a
// rule excepts: after plain text, ^/(?!api|static).* is ^/.* except ^/(?:api|static); for
// hidden names, /\.(?!well-known) is /\. except for paths in which each /. is /.well-known.
func Excepting(expr string) (rest, except string, ok bool) {
	head, body, tail, ok := cutLookahead(expr)
	if !ok || strings.Contains(tail, ahead) {
		return expr, "", false
	}
	if words, plain := plainWords(body); plain && slices.Contains([]string{`/\.`, `(^|/)\.`, `(?:^|/)\.`}, head) && (tail == "" || tail == ".*") && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "/") }) {
		return `/\.`, `^(?:/\.(?:` + body + `)|/[^./]|[^/])*/?$`, true
	}
	if !regexp.MustCompile(`^\^(?:[\w/-]|\\[./-])*$`).MatchString(head) {
		return expr, "", false
	}
	return head + tail, head + "(?:" + body + ")", true
}

// listing replaces words that must not follow by all that may. This is the same where the
// expression asks nothing else of what follows.
func listing(expr string) string {
	head, body, tail, ok := cutLookahead(expr)
	words, plain := plainWords(body)
	if !ok || !plain || strings.Contains(tail, ahead) || !asksNothing(tail) {
		return expr
	}
	if others := OtherThan(words); others != "" {
		return head + others + tail
	}
	return expr
}

// cutLookahead cuts an expression around the first place where it looks ahead.
func cutLookahead(expr string) (head, body, tail string, ok bool) {
	head, rest, ok := strings.Cut(expr, ahead)
	if !ok {
		return "", "", "", false
	}
	end := draft.Closing(rest)
	if end < 0 {
		return "", "", "", false
	}
	return head, rest[:end], rest[end+1:], true
}

// plainWords are the alternatives of an expression that has nothing but words.
func plainWords(body string) (words []string, ok bool) {
	if m := regexp.MustCompile(`^\((?:\?:)?([^()]*)\)$`).FindStringSubmatch(body); m != nil {
		body = m[1]
	}
	for word := range strings.SplitSeq(body, "|") {
		if !regexp.MustCompile(`^(?:[\w/-]|\\[./-])+$`).MatchString(word) {
			return nil, false
		}
		words = append(words, strings.ReplaceAll(word, `\`, ""))
	}
	return words, true
}

// asksNothing reports whether the remaining expression matches whatever follows.
func asksNothing(tail string) bool {
	rest, rests := strings.CutPrefix(tail, ".*")
	for {
		switch {
		case rest == "":
			return true
		case rest[0] == '$' && rests:
			rest = rest[1:]
		case rest[0] == ')':
			rest = rest[1:]
		case rest[0] == '|': // other ways, to the end of the group
			end := draft.Closing(rest)
			if end < 0 {
				return true
			}
			rest = rest[end+1:]
		default:
			return false
		}
	}
}

// OtherThan is an expression for texts that begin with none of these words.
func OtherThan(words []string) string {
	if slices.Contains(words, "") {
		return ""
	}
	firsts := ""
	behind := map[string][]string{}
	for _, w := range words {
		first := w[:1]
		if behind[first] == nil {
			firsts += first
		}
		behind[first] = append(behind[first], w[1:])
	}
	ways := []string{"$", "[^" + strings.ReplaceAll(firsts, "-", `\-`) + "]"}
	for c := range strings.SplitSeq(firsts, "") {
		if more := OtherThan(behind[c]); more != "" {
			ways = append(ways, regexp.QuoteMeta(c)+more)
		}
	}
	return "(?:" + strings.Join(ways, "|") + ")"
}

// MayMatch reports whether an expression may match a path that begins with a text: it is
// false for those alone that begin with ^ and match no such path.
func MayMatch(expr, begins string) bool {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return true
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return true
	}
	anchored := prog.StartCond()&syntax.EmptyBeginText != 0
	states := reached(prog, []uint32{uint32(prog.Start)})
	for _, r := range begins {
		var next []uint32
		for _, i := range states {
			switch inst := &prog.Inst[i]; {
			case inst.Op == syntax.InstMatch:
				return true
			case inst.Op != syntax.InstMatch && inst.MatchRune(r):
				next = append(next, inst.Out)
			}
		}
		states = reached(prog, next)
	}
	return !anchored || len(states) > 0
}

// reached are the instructions that consume a character, or match, behind others. What is
// said of a place between characters is taken for true.
func reached(prog *syntax.Prog, from []uint32) (states []uint32) {
	seen := map[uint32]bool{}
	for len(from) > 0 {
		i := from[0]
		from = from[1:]
		if seen[i] {
			continue
		}
		seen[i] = true
		switch inst := &prog.Inst[i]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			from = append(from, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			from = append(from, inst.Out)
		case syntax.InstFail:
		default:
			states = append(states, i)
		}
	}
	return states
}

// mostWords bounds the texts that stand for an expression.
const mostWords = 64

// Words are the texts that an expression with ^ and $ matches, in lower case, if they are
// few: ^(www\.)?example\.(org|com)$ is four.
func Words(expr string) ([]string, bool) {
	bare := strings.TrimPrefix(expr, "(?i)")
	for _, way := range draft.Alternatives(bare) {
		if !strings.HasPrefix(way, "^") || !strings.HasSuffix(way, "$") {
			return nil, false
		}
	}
	re, err := syntax.Parse(bare, syntax.Perl)
	if err != nil {
		return nil, false
	}
	list, ok := words(re.Simplify())
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return draft.Unique(list), ok
}

func words(re *syntax.Regexp) (list []string, ok bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if list = append(list, string(r)); len(list) > mostWords {
					return nil, false
				}
			}
		}
		return list, true
	case syntax.OpCapture:
		return words(re.Sub[0])
	case syntax.OpQuest:
		list, ok = words(re.Sub[0])
		return append(list, ""), ok
	case syntax.OpAlternate:
		for _, s := range re.Sub {
			more, ok := words(s)
			if list = append(list, more...); !ok || len(list) > mostWords {
				return nil, false
			}
		}
		return list, true
	case syntax.OpConcat:
		list = []string{""}
		for _, s := range re.Sub {
			more, ok := words(s)
			if !ok || len(list)*len(more) > mostWords {
				return nil, false
			}
			var next []string
			for _, a := range list {
				for _, b := range more {
					next = append(next, a+b)
				}
			}
			list = next
		}
		return list, true
	}
	return nil, false
}

// Whole makes an expression match the whole path, as the proxy's rewrite does.
func Whole(expr string) string {
	if rest, fold := strings.CutPrefix(expr, "(?i)"); fold {
		return "(?i)" + Whole(rest)
	}
	if rest, ok := strings.CutPrefix(expr, "^"); ok {
		expr = rest
	} else {
		expr = ".*?" + expr
	}
	if rest, ok := strings.CutSuffix(expr, "$"); ok && !strings.HasSuffix(rest, `\`) {
		return rest
	}
	return expr + ".*"
}
