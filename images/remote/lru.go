package remote

import (
	"container/list"
	"iter"
)

// lru is a map that forgets what was not asked for the longest. Its user locks it.
type lru[T any] struct {
	most  int
	items map[string]*list.Element
	order *list.List // of item[T], the latest first
}

type item[T any] struct {
	name  string
	value T
}

func newLRU[T any](most int) lru[T] {
	return lru[T]{most: most, items: map[string]*list.Element{}, order: list.New()}
}

func (l *lru[T]) get(name string) (value T, ok bool) {
	e, ok := l.items[name]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(item[T]).value, true
}

// put adds a name that is not there yet. It returns what had to make room.
func (l *lru[T]) put(name string, value T) (gone T, full bool) {
	if len(l.items) >= l.most {
		last := l.order.Back()
		gone, full = last.Value.(item[T]).value, true
		l.remove(last.Value.(item[T]).name)
	}
	l.items[name] = l.order.PushFront(item[T]{name, value})
	return gone, full
}

func (l *lru[T]) remove(name string) {
	if e, ok := l.items[name]; ok {
		l.order.Remove(e)
		delete(l.items, name)
	}
}

func (l *lru[T]) all() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for e := l.order.Front(); e != nil; e = e.Next() {
			it := e.Value.(item[T])
			if !yield(it.name, it.value) {
				return
			}
		}
	}
}
