package nginx

import (
	"slices"

	"millrace/importer/draft"
)

// scope is a block and the blocks that it is in: a setting comes from the nearest that
// has it.
type scope struct {
	parent *scope
	list   []*draft.Directive
}

// own is the last directive with a name in the block itself.
func (s *scope) own(name string) *draft.Directive {
	for _, d := range slices.Backward(s.list) {
		if d.Name == name && !d.Opens {
			return d
		}
	}
	return nil
}

// last is the directive with a name that holds in the block, own or inherited; or nil.
func (s *scope) last(name string) *draft.Directive {
	for at := s; at != nil; at = at.parent {
		if d := at.own(name); d != nil {
			return d
		}
	}
	return nil
}

// all are the directives of these names that hold here: nginx takes them from
// the nearest block that has one of them, and none of those around it.
func (s *scope) all(names ...string) (found []*draft.Directive) {
	for at := s; at != nil; at = at.parent {
		for _, d := range at.list {
			if slices.Contains(names, d.Name) {
				found = append(found, d)
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// each are the directives of a name in the block itself.
func (s *scope) each(name string) (found []*draft.Directive) {
	for _, d := range s.list {
		if d.Name == name {
			found = append(found, d)
		}
	}
	return found
}
