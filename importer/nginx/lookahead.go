package nginx

import (
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// RE2 does not look ahead. What configs of nginx look ahead for, "not followed by",
// can be said in two other ways: by a second expression that a rule excepts, where
// the place is always the same, and by listing what may follow instead, where it is
// not followed by plain words.

// ahead opens what must not follow.
const ahead = "(?!"

// excepting splits an expression that looks ahead after plain text into two:
// ^/(?!api|static).* is ^/.* except ^/(?:api|static).
func excepting(expr string) (rest, except string, ok bool) {
	head, body, tail, ok := cutLookahead(expr)
	if !ok || !regexp.MustCompile(`^\^(?:[\w/-]|\\[./-])*$`).MatchString(head) || strings.Contains(tail, ahead) {
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
	if others := otherThan(words); others != "" {
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

// otherThan is an expression for texts that begin with none of these words.
func otherThan(words []string) string {
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
		if more := otherThan(behind[c]); more != "" {
			ways = append(ways, regexp.QuoteMeta(c)+more)
		}
	}
	return "(?:" + strings.Join(ways, "|") + ")"
}
