// SPDX-License-Identifier: BSD-2-Clause

// Allocates and grows maps without end, below stacks that grow: most of the time is the runtime's, much of it on
// the runtime's own stacks.
package main

import "fmt"

type node struct {
	left, right *node
	pad         [6]int
}

//go:noinline
func build(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: build(depth - 1), right: build(depth - 1)}
}

//go:noinline
func growMap(n int) int {
	m := map[int][]string{}
	for i := 0; i < n; i++ {
		m[i*7919%n] = append(m[i*7919%n], fmt.Sprintf("k%d", i))
	}
	return len(m)
}

//go:noinline
func deepStack(n int) int {
	var local [64]int
	if n == 0 {
		return growMap(200)
	}
	local[n%64] = n
	return deepStack(n-1) + local[n%64]
}

func main() {
	keep := build(16)
	fmt.Println("ready")
	for sum := 0; keep != nil; {
		done := make(chan int)
		for g := 0; g < 4; g++ {
			go func() { done <- deepStack(60) + growMap(2000) }()
		}
		for g := 0; g < 4; g++ {
			sum += <-done
		}
		keep = build(14)
	}
}
