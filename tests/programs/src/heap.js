// Arrays of numbers and objects of small parts, more than the budget: arguments are how many arrays.
"use strict";
const many = Number(process.argv[2]);
const arrays = [];
for (let index = 0; index < many; index++) {
  const array = [];
  for (let at = 0; at < 120; at++) array.push(index * 0.5 + at);
  arrays.push({ array, name: "array " + index });
}
let wrong = 0;
let sum = 0;
for (let round = 0; round < 2; round++) {
  for (let index = 0; index < many; index++) {
    const { array, name } = arrays[index];
    if (name !== "array " + index || array.length !== 120) wrong++;
    for (let at = 0; at < 120; at++) {
      if (array[at] !== index * 0.5 + at) wrong++;
      sum = (sum + array[at] * 2) % 1000003;
    }
    // Garbage, for the collector to come.
    if (index % 7 === 0) arrays[index] = { array: array.slice(), name: name.slice(0, 3) + name.slice(3) };
  }
}
console.log(many, sum);
process.exitCode = wrong === 0 ? 0 : 9;
