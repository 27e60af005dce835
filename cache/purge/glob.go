package purge

import (
	"fmt"
	"strings"
)

// glob is a compiled pattern: what stands between its stars. Matching goes
// through the text once, from left to right, since the leftmost place of a part
// leaves most room for those after it.
type glob struct {
	exact  bool // there is no star: first is everything
	first  string
	middle []string
	last   string
}

// mostFloating is the length of a part between two stars that holds a question
// mark: it is tried at every place of a URL, and this bounds what that costs.
// Parts without one are searched by strings.Index.
const mostFloating = 64

// mostParts bounds the stars of a glob.
const mostParts = 64

func compile(pattern string) (glob, error) {
	var g glob
	parts := strings.Split(pattern, "*")
	if len(parts) > mostParts {
		return glob{}, fmt.Errorf("glob %q has more than %d stars", pattern, mostParts-1)
	}
	g.first = parts[0]
	if len(parts) == 1 {
		g.exact = true
		return g, nil
	}
	g.last = parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		if part == "" {
			continue
		}
		if len(part) > mostFloating && strings.Contains(part, "?") {
			return glob{}, fmt.Errorf("glob %q: what stands between two stars may have %d characters if there is a ? in it", pattern, mostFloating)
		}
		g.middle = append(g.middle, part)
	}
	return g, nil
}

func (g *glob) match(text string) bool {
	if len(text) < len(g.first)+len(g.last) || !alike(text[:len(g.first)], g.first) {
		return false
	}
	text = text[len(g.first):]
	if g.exact {
		return text == ""
	}
	end := len(text) - len(g.last)
	if !alike(text[end:], g.last) {
		return false
	}
	text = text[:end]
	for _, part := range g.middle {
		i := index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// alike compares two strings of one length, with ? for any byte.
func alike(text, part string) bool {
	for i := range len(part) {
		if part[i] != text[i] && part[i] != '?' {
			return false
		}
	}
	return true
}

func index(text, part string) int {
	if !strings.Contains(part, "?") {
		return strings.Index(text, part)
	}
	for i := 0; i+len(part) <= len(text); i++ {
		if alike(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}
