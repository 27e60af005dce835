package draft

// This file finds the parts of a regular expression, of PCRE or RE2, that an
// importer writes anew.

import "iter"

// Syntax yields the bytes of an expression that may have a meaning, with their
// places: those that are neither escaped nor in a class in brackets, in which a ]
// that comes first stands for itself.
func Syntax(expr string) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		for i := 0; i < len(expr); i++ {
			switch c := expr[i]; c {
			case '\\':
				i++
			case '[':
				i = classEnd(expr, i)
			default:
				if !yield(i, c) {
					return
				}
			}
		}
	}
}

// classEnd is where the class that begins at i ends, the expression's length if
// nowhere.
func classEnd(expr string, i int) int {
	i++
	if i < len(expr) && expr[i] == '^' {
		i++
	}
	for first := i; i < len(expr); i++ {
		switch expr[i] {
		case '\\':
			i++
		case ']':
			if i > first {
				return i
			}
		}
	}
	return i
}

// Closing is where the parenthesis is that closes a group whose inside begins text,
// -1 if nowhere.
func Closing(text string) int {
	depth := 0
	for i, c := range Syntax(text) {
		switch {
		case c == '(':
			depth++
		case c == ')' && depth == 0:
			return i
		case c == ')':
			depth--
		}
	}
	return -1
}

// Alternatives splits an expression at each | outside of groups.
func Alternatives(expr string) (list []string) {
	depth, from := 0, 0
	for i, c := range Syntax(expr) {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			list = append(list, expr[from:i])
			from = i + 1
		}
	}
	return append(list, expr[from:])
}
