// Rules for the studio's JavaScript: what is likely a mistake, and lines that a reader must scroll.
import js from "@eslint/js";
import globals from "globals";

export default [
	js.configs.recommended,
	{
		languageOptions: { globals: globals.browser },
		rules: {
			eqeqeq: ["error", "always", { null: "ignore" }],
			"max-len": ["error", { code: 120, tabWidth: 1, ignoreUrls: true }],
			"no-restricted-syntax": [
				"error",
				{
					selector: "TemplateElement[value.raw=/\\n(\\t|\\/\\/)/]",
					message: "Scripts are served without leading tabs and comment lines: join lines with \\n instead.",
				},
			],
			"no-shadow": "error",
			"no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
			"no-var": "error",
			"prefer-const": "error",
		},
	},
];
