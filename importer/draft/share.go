package draft

import (
	"fmt"
	"strings"
)

// worth is how long the text of a value is that is written once.
const worth = 50

// Share is the config in which what stands several times is written once: the first has a
// name, and the others stand for it.
//
//	rules:
//	  - &rule {regex: '/\.', deny: {}}
//	  - {path: /old, rewrite: /new}
//	  - *rule
func (n *Node) Share() *Node {
	n = n.Clone()
	seen, used := map[string]*Node{}, map[string]int{}
	var walk func(in *Node, key string)
	walk = func(in *Node, key string) {
		for _, i := range in.items {
			name := i.key
			if in.kind == list {
				name = strings.TrimSuffix(key, "s") // one of the rules
			}
			text := i.value.String()
			first := seen[text]
			switch {
			case i.value.kind == scalar:
				continue
			case len(text) < worth || i.value.commented() || strings.ContainsAny(name, "/@"):
			case first == nil:
				seen[text] = i.value
			default:
				if first.anchor == "" {
					if first.anchor = name; used[name] > 0 {
						first.anchor = fmt.Sprint(name, used[name]+1)
					}
					used[name]++
				}
				i.value.anchor, i.value.alias = first.anchor, true
				continue
			}
			walk(i.value, name)
		}
	}
	walk(n, "")
	return n
}

// commented reports whether there is a comment in a value.
func (n *Node) commented() bool {
	for _, i := range n.items {
		if len(i.comment) > 0 || i.value.commented() {
			return true
		}
	}
	return false
}

// named puts a value's name to its text, in front of an opening brace or bracket, or behind
// the key.
func (n *Node) named(text string) string {
	switch {
	case n.anchor == "":
		return text
	case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
		return "&" + n.anchor + " " + text
	}
	return text + " &" + n.anchor
}
