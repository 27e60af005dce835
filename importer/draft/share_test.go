package draft

import "testing"

// TestShare: what stands several times is written once, whatever its form; what has a
// comment in it, or is short, is not.
func TestShare(t *testing.T) {
	rule := func(to string) *Node {
		return Map().Set("path", Text("/a/path/that/is/long/enough/to/be/named")).Set("rewrite", Text(to)).Flow()
	}
	site := func(name string) *Node {
		rules := List()
		rules.Add(rule("/x"), "a.conf:1")
		rules.Add(rule("/"+name), "a.conf:2")
		rules.Add(Map().Set("deny", Map().Flow()).Flow())
		headers := Map().Set("set", Map().Set("X-A", Text("a long value of a field")).Set("X-B", Text("another long value")).Flow()).Set("remove", Texts("Server"))
		return Map().Set("hosts", Texts(name)).Set("rules", rules).Set("headers", headers)
	}
	sites := List()
	for _, name := range []string{"a", "b", "c"} {
		sites.Add(site(name))
	}
	const want = `sites:
  - hosts: [a]
    rules:
      # a.conf:1
      - &rule {path: /a/path/that/is/long/enough/to/be/named, rewrite: /x}
      # a.conf:2
      - {path: /a/path/that/is/long/enough/to/be/named, rewrite: /a}
      - {deny: {}}
    headers: &headers
      set: {X-A: 'a long value of a field', X-B: 'another long value'}
      remove: [Server]
  - hosts: [b]
    rules:
      # a.conf:1
      - *rule
      # a.conf:2
      - {path: /a/path/that/is/long/enough/to/be/named, rewrite: /b}
      - {deny: {}}
    headers: *headers
  - hosts: [c]
    rules:
      # a.conf:1
      - *rule
      # a.conf:2
      - {path: /a/path/that/is/long/enough/to/be/named, rewrite: /c}
      - {deny: {}}
    headers: *headers
`
	root := Map().Set("sites", sites)
	before := root.String()
	if got := root.Share().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if root.String() != before {
		t.Error("the config itself has changed")
	}
}
