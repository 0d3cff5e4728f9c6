/* SPDX-License-Identifier: BSD-2-Clause */
#include "alloc_fail.h"
int main(void){return 0;}
