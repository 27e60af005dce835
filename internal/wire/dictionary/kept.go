package dictionary

import (
	"container/list"
	"sync"
)

const (
	// keptForRule bounds the dictionaries of one rule: as many versions back as
	// visitors come from in numbers.
	keptForRule = 16
	// keptBytes bounds those of all rules together.
	keptBytes = 32 << 20
)

// Kept are the contents that clients may have, by rule and hash: those that were
// added or asked for last. The zero value is ready.
type Kept struct {
	mu     sync.Mutex
	byName map[name]*list.Element
	recent list.List // of *kept, the last used in front
	rules  [maxRules + 1]int
	bytes  int
}

type name struct {
	rule int
	hash Hash
}

// Clear forgets all contents.
func (k *Kept) Clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.byName)
	k.recent.Init()
	k.rules, k.bytes = [maxRules + 1]int{}, 0
}

type kept struct {
	name
	content []byte
}

// Add keeps a content, which must not change any more.
func (k *Kept) Add(rule int, content []byte) {
	n := name{rule, Of(content)}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byName == nil {
		k.byName = map[name]*list.Element{}
		k.recent.Init()
	}
	if e := k.byName[n]; e != nil {
		k.recent.MoveToFront(e)
		return
	}
	k.byName[n] = k.recent.PushFront(&kept{n, content})
	k.rules[rule]++
	k.bytes += len(content)
	for e := k.recent.Back(); e != nil; {
		old, before := e.Value.(*kept), e.Prev()
		if before != nil && (k.bytes > keptBytes || old.rule == rule && k.rules[rule] > keptForRule) {
			k.recent.Remove(e)
			delete(k.byName, old.name)
			k.rules[old.rule]--
			k.bytes -= len(old.content)
		}
		e = before
	}
}

// Has reports whether a dictionary of a rule is kept.
func (k *Kept) Has(rule int, hash Hash) bool { return k.Get(rule, hash) != nil }

// Get returns a dictionary of a rule, nil if it is not known.
func (k *Kept) Get(rule int, hash Hash) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byName[name{rule, hash}]
	if e == nil {
		return nil
	}
	k.recent.MoveToFront(e)
	return e.Value.(*kept).content
}
